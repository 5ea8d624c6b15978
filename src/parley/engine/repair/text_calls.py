"""Tool calls that a model writes as text, in the formats of chat templates. Pure.

    read_calls('<tool_call>{"name": "Read", "arguments": {"path": "a"}}</tool_call>', is_tool)
        -> [TextCall("Read", '{"path": "a"}')]

Formats: Hermes and Qwen (`<tool_call>` with JSON or XML), Llama (`<function=NAME>`, `<|python_tag|>`, JSON alone, a
list of Python calls), Mistral (`[TOOL_CALLS]`), harmony channels, `<invoke>`, DeepSeek, Kimi, GLM, MiniMax, Seed,
Nemotron, Command A, Gemma (`tool_code`), and JSON in a fence.

Text is a call only if nothing but calls follows: in the middle of an explanation it is an example. JSON without tags
must name a tool. Arguments that were cut off stay as they are, and `arguments.py` refuses them.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator

import msgspec

from parley.engine.repair.arguments import LenientReader, NotRepairable
from parley.engine.repair.marks import ARGUMENTS, HARMONY, NAMED, NAMESPACE, OTHER_KEYS, TAGGED
from parley.protocol.base import Json, Struct

BETWEEN = re.compile(
    r"(?i)(?:\s|,(?=\s*\{)|;|```"
    rf"|</?{NAMESPACE}(?:tool_?calls?|function_?calls?|tool_use|tools?)\s*>|</{NAMESPACE}(?:function|invoke|arguments)>"
    r"|<\|(?!channel|start\||python_tag|message)[\w /]*\|>|<｜[^｜]*｜>|</s>|\[/TOOL_CALLS\])*"
)
"""What may stand between calls and after them."""
FUNCTION = re.compile(
    rf"(?i)<{NAMESPACE}(?:function=|(?:function|invoke|tool_use|tool_call)\s+name=)\s*[\"']?([^\"'>\s]+)[\"']?\s*>"
)
PARAMETER = re.compile(
    rf"\s*<{NAMESPACE}parameter(?:=|\s+name=)\s*[\"']?([^\"'>\s]+)[\"']?[^>]*>(.*?)</{NAMESPACE}parameter>", re.S
)
CLOSING = re.compile(rf"\s*</{NAMESPACE}(?:function|invoke)>")
CHANNEL = re.compile(
    r"(?:<\|start\|>assistant)?\s*(?:<\|channel\|>)?[^<]*\bto=([\w.:-]+)(?:\s*<\|channel\|>\w+)?"
    r"[^<]*(?:<\|constrain\|>\w+)?\s*<\|message\|>"
)
DEEPSEEK = re.compile(r"(?:\w*<｜tool▁sep｜>(?=\w))?([\w.:-]+)(?:<｜tool▁sep｜>)?\s*(?:```json)?\s*(?=\{)")
KIMI = re.compile(r"([\w.:-]+?)(?::\d+)?\s*<\|tool_call_argument_begin\|>\s*")
ELEMENTS = re.compile(r"<name>([^<]+)</name>\s*<arguments>\s*")
MISTRAL = re.compile(r"(?:\[TOOL_CALLS\])?\s*([\w.-]+)\s*(?:\[CALL_ID\]\w+)?\s*(?:\[ARGS\])?(?=\s*\{)")
PYTHON = re.compile(r"\[|(?:print\()?[A-Za-z_][\w.]*\(")
PYTHON_END = re.compile(r"(?:<\|[^|]*\|>|```|\s)+$")
GLM = re.compile(r"([\w.-]+)\s*(?=<arg_key>)")
GLM_ARGUMENT = re.compile(r"\s*<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.S)
GLM_END = re.compile(r"\s*</tool_call>")
CUT_OFF = re.compile(
    r"""\s*\[?\s*\{\s*["'](?:name|tool|function)["']\s*:\s*["']([\w.:-]+)["']\s*,?\s*"""
    r"""(?:["'](?:arguments|parameters|input|args)["']\s*:\s*)?(.*)""",
    re.S,
)
OPENING = re.compile(
    rf"(?i)(?:\s|<{NAMESPACE}(?:tool_?calls?|function_?calls?|tool_use)(?:\s(?!\s*name=)[^>]*)?>"
    r"|\[TOOL_CALLS\](?=\s*[\[{])"
    r"|<\|(?:python_tag|python_start|START_ACTION|tool_calls?(?:_section)?_(?:begin|start)|tool_call(?:_begin)?)\|>"
    r"|<｜tool▁calls?▁begin｜>|```(?:json|tool_call|tool_code|tool|python)?)*"
)
"""What may stand before the first call."""


class TextCall(Struct, frozen=True):
    name: str
    arguments: str
    """JSON, or what the model wrote instead."""


def read_calls(text: str, is_tool: Callable[[str], bool]) -> list[TextCall]:
    """The calls that a text consists of; empty if it is something else."""
    try:
        found = list(iterate_calls(text))
    except NotRepairable:
        return []
    has_tags = TAGGED.match(text) is not None or HARMONY.match(text) is not None
    return found if has_tags or all(is_tool(call.name) for call in found) else []


def iterate_calls(text: str) -> Iterator[TextCall]:
    """Raises NotRepairable if something in the text is not a call."""
    at = OPENING.match(text).end()  # type: ignore[union-attr]
    while at < len(text):
        calls, end = read_one(text, at)
        yield from calls
        end = OPENING.match(text, BETWEEN.match(text, end).end()).end()  # type: ignore[union-attr]
        if end <= at:
            raise NotRepairable("expected a call", text, at)
        at = end


def read_one(text: str, at: int) -> tuple[list[TextCall], int]:
    """The calls at a position, and where they end. Raises NotRepairable."""
    if (found := FUNCTION.match(text, at)) is not None:
        return read_function(found[1], text, found.end())
    if (found := GLM.match(text, at)) is not None:
        given, end = read_pairs(GLM_ARGUMENT, text, found.end())
        if (closing := GLM_END.match(text, end)) is None:
            return [TextCall(found[1], text[found.end() :])], len(text)  # cut off: not JSON, so it is refused
        return [TextCall(found[1], encode(given))], closing.end()
    for pattern in (CHANNEL, DEEPSEEK, KIMI, MISTRAL, ELEMENTS):
        if (found := pattern.match(text, at)) is not None:
            arguments, end = read_raw(text, found.end())
            return [TextCall(found[1], arguments)], end
    if PYTHON.match(text, at) is not None and (python := read_python(text, at)) is not None:
        return python, len(text)
    reader = LenientReader(text, at)
    try:
        value = reader.read_value()
    except NotRepairable:
        if (cut := read_cut_off(text[at:])) is None:
            raise
        return [cut], len(text)
    if isinstance(value, dict) and value.keys() == {"tool_calls"}:
        value = value["tool_calls"]
    return [read_object(item, text, at) for item in (value if isinstance(value, list) else [value])], reader.at


def read_function(name: str, text: str, at: int) -> tuple[list[TextCall], int]:
    """A call with its parameters as elements or as JSON. A parameter or a call without its end was cut off."""
    if text[at:].lstrip().startswith("{"):
        arguments, end = read_raw(text, at)
        return [TextCall(name, arguments)], end
    given, end = read_pairs(PARAMETER, text, at)
    if (closing := CLOSING.match(text, end)) is None:
        return [TextCall(name, text[at:])], len(text)  # not JSON, so it is refused
    return [TextCall(name, encode(given))], closing.end()


def read_pairs(pattern: re.Pattern[str], text: str, at: int) -> tuple[Json, int]:
    """Parameters as elements. Their values are texts; the schema of the tool says what they mean."""
    given: Json = {}
    while (found := pattern.match(text, at)) is not None:
        value = found[2]
        # Templates put the value on lines of its own.
        given[found[1].strip()] = value[1:].removesuffix("\n") if value.startswith("\n") else value
        at = found.end()
    return given, at


def read_raw(text: str, at: int) -> tuple[str, int]:
    """The text of a JSON value, and where it ends: the rest, if it is cut off."""
    reader = LenientReader(text, at)
    try:
        reader.read_value()
    except NotRepairable:
        return text[at:], len(text)
    return text[at : reader.at], reader.at


def read_object(value: object, text: str, at: int) -> TextCall:
    """A call as an object with a name and arguments. Raises NotRepairable."""
    if isinstance(value, dict) and isinstance(inner := value.get("function"), dict):
        value = inner  # as chat completions have it
    if isinstance(value, dict):
        names = [value[key] for key in NAMED if isinstance(value.get(key), str)]
        keys = [key for key in ARGUMENTS if key in value]
        if len(names) == 1 and len(keys) <= 1 and not value.keys() - {*NAMED, *ARGUMENTS, *OTHER_KEYS}:
            given = value[keys[0]] if keys else {}
            return TextCall(names[0], given if isinstance(given, str) else encode(given))
    raise NotRepairable("expected a call", text, at)


def read_cut_off(text: str) -> TextCall | None:
    """A call in JSON that is not complete, so that the model can be told; it is never run."""
    found = CUT_OFF.match(text)
    return None if found is None else TextCall(found[1], found[2])


def read_python(text: str, at: int) -> list[TextCall] | None:
    """Calls in Python, as a list or one after the other, whose arguments are all literals and have names."""
    try:
        lines = ast.parse(PYTHON_END.sub("", text[at:]).strip()).body
        found = []
        for line in lines:
            value = line.value if isinstance(line, ast.Expr) else None
            for item in value.elts if isinstance(value, ast.List) else [value]:
                is_shown = isinstance(item, ast.Call) and ast.unparse(item.func) == "print" and len(item.args) == 1
                call = item.args[0] if is_shown else item  # type: ignore[union-attr]
                if not isinstance(call, ast.Call) or call.args or any(part.arg is None for part in call.keywords):
                    return None
                given = {str(part.arg): ast.literal_eval(part.value) for part in call.keywords}
                # An infinite number, which is not JSON, stays one and is refused.
                found.append(TextCall(ast.unparse(call.func), json.dumps(given)))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return found or None


def encode(value: object) -> str:
    return msgspec.json.encode(value).decode()
