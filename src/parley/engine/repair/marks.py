"""Where calls and thinking begin in a text that a model writes. Pure.

See also: `text_calls.py` reads the calls, `answer.py` holds the text back until they are complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

NAMESPACE = r"(?:[\w-]+:|[|｜]DSML[|｜])?"
"""What some families of models put before the name of a tag."""
TAGGED = re.compile(
    rf"(?i)<{NAMESPACE}(?:tool_?calls?|function_?calls?|tool_use|function|invoke)\b[^>]*>"
    rf"|<{NAMESPACE}(?:function|invoke)\b|\[TOOL_CALLS\]|<\|(?:python_tag|python_start|tool_call\w*|START_ACTION)\|>"
    r"|<｜tool▁calls?▁begin｜>|<\|(?:start\|>assistant<\|)?channel\|>[^<]*to="
)
"""How calls with tags begin."""
BARE = re.compile(r"```(?:json|tool_call|tool_code|tool|python)?\s*[\[{]|```tool_code\s|\{|\[\s*(?:\{|[A-Za-z_]\w*\()")
"""How calls without tags begin: JSON, perhaps in a fence, or Python calls."""
SUSPECT = re.compile(r"[<`\[{◁]")
THINK = re.compile(r"(?i)(?:<(?:\w+:)?(?:think(?:ing)?|thought|reasoning)>|\[THINK\]|◁think▷|<\|START_THINKING\|>)\s*")
END_THINK = re.compile(
    r"(?i)(?:</(?:\w+:)?(?:think(?:ing)?|thought|reasoning)>|\[/THINK\]|◁/think▷|<\|END_THINKING\|>)\s*"
)
LONE_END = re.compile(r"(?i)</think(?:ing)?>\s*")
"""The end of thinking that begins without a tag."""
TOKEN = re.compile(
    r"(?:<\|(?:im_end|eot_id|eom_id|endoftext|end_of_text|START_RESPONSE|END_RESPONSE)\|>|<｜end▁of▁sentence｜>"
    r"|<end_of_turn>|</s>)\s*"
)
"""Tokens of chat templates that servers should not send."""
HARMONY = re.compile(r"<\|(?:channel|start)\|>")
SEGMENT = re.compile(
    r"(?:<\|start\|>assistant[^<]*)?(?:<\|channel\|>([^<]*)(?:<\|constrain\|>[^<]*)?)?<\|message\|>(.*?)"
    r"(?:<\|(?:end|return|call)\|>|(?=<\|start\|>|<\|channel\|>)|$)",
    re.S,
)
REPEATED_CHANNEL = re.compile(r"(\bto=[\w.:-]+)\s*<\|channel\|>(\w+)")
"""A call may name its channel before and after the tool."""
CALL_TAGS = ("tool_call>", "tool_calls>", "toolcall>", "function_call>", "function_calls>", "tool_use>", "invoke")
LITERALS = (
    *(f"<{namespace}{tag}" for namespace in ("", "antml:", "minimax:", "seed:", "｜dsml｜") for tag in CALL_TAGS),
    *(f"<{slash}{tag}>" for slash in ("", "/") for tag in ("think", "thinking", "thought", "reasoning", "seed:think")),
    *("<function=", "<function ", "[tool_calls]", "[think]", "[/think]", "◁think▷", "◁/think▷", "</s>"),
    *("<end_of_turn>", "<｜end▁of▁sentence｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"),
    *("<|python_tag|>", "<|python_start|>", "<|tool_call|>", "<|tool_calls_section_begin|>", "<|tool_call_start|>"),
    *("<|start_action|>", "<|start_thinking|>", "<|end_thinking|>", "<|start_response|>", "<|end_response|>"),
    *("<|channel|>", "<|start|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>"),
)
PREFIXES = frozenset(literal[:end] for literal in LITERALS for end in range(1, len(literal) + 1))
MAX_PREFIX_CHARS = max(map(len, LITERALS))
OPEN_TAG = re.compile(rf"(?i)<{NAMESPACE}(?:tool_?calls?|function_?calls?|tool_use)\s[^>]{{0,200}}")
"""A tag that begins a call and has not ended."""
MARKS = {"think": THINK, "end_think": LONE_END, "token": TOKEN, "harmony": HARMONY, "call": TAGGED}
OPENINGS = frozenset(literal[:2] for literal in LITERALS)
"""How all of them begin."""
OPEN_QUOTATION = re.compile(r"(?i)<(?:!--|(?:code|pre|samp|examples?|blockquote|quote|tool_re(?:sponse|sult))\b)")
END_QUOTATION = re.compile(r"(?i)-->|</(?:code|pre|samp|examples?|blockquote|quote|tool_re(?:sponse|sult))>")
UNREAD_CALL = re.compile(
    r"(?m)(?s:^(?:>>>\s*([\w.]+)\s*\{.*\}|Action:\s*([\w.]+)\s*\n\s*Action Input:.*"
    r"|Action:\s*```json\s*\[\s*\{\s*\"tool_name\":\s*\"([\w.]+)\".*|<([\w.]+)>\s*<\w+>.*</\4>)\s*\Z)"
)
"""A call at the end of a text, in a format that is not read: the model is asked to make it again."""
DECIDED_CHARS = 48
"""How much of JSON or of a fence shows whether it is a call."""
NAMED = ("name", "tool", "tool_name", "function", "function_name", "action")
ARGUMENTS = ("arguments", "parameters", "input", "args", "tool_input", "tool_args", "action_input")
OTHER_KEYS = ("id", "type", "tool_call_id", "index")
"""The keys of a call in JSON."""
JSON_CALL = re.compile(
    rf"(?:```\w*\s*)?(?=(?:\[\s*)?\{{\s*[\"'](?:{'|'.join((*NAMED, *OTHER_KEYS, 'tool_calls'))})[\"']\s*:)"
)
JSON_ITEM = re.compile(
    r"""[\s,\[{]*["']([^"']{1,99})["']\s*:\s*(?:"([^"]{0,200})"|'([^']{0,200})'|[\w.-]+(?=\s*[,}]))?"""
)
"""A key, and its value if that is short."""
MAX_NAME_CHARS = 200
PYTHON_CALL = re.compile(r"(?:```\w*\s*)?\[\s*[A-Za-z_]\w*\(\s*\w+\s*=|```tool_code\s+(?:print\()?[A-Za-z_][\w.]*\(")
CODE_INDENT = 4
"""Markdown takes lines with this many spaces for code."""
MAX_PROMISE_CHARS = 200
PROMISE = re.compile(r"\s*[^\n`{}]{0,200}[:.]?\s*", re.S)
"""What may stand before a call in a fence: one line."""
FUTURE = re.compile(r"(?i)\b(?:i'll|i will|i am going to|i'm going to|let me|let's|i need to|calling)\b")


def find_mark(pending: str, seen: Sequence[str], is_tool: Callable[[str], bool] | None) -> tuple[str, int]:
    """What a text contains after what was seen, and where: a mark, something undecided, or nothing (an empty kind).

    `is_tool`: whether a name means a tool; None if there are none.
    """
    has_tools = is_tool is not None
    for found in SUSPECT.finditer(pending):
        at, rest = found.start(), pending[found.start() :]
        kind = ""
        if rest[:2].lower() in OPENINGS:
            kind = next((kind for kind, mark in MARKS.items() if mark.match(rest) is not None), "")
        may_be_bare = rest[0] != "<" and has_tools and len(seen) < MAX_PROMISE_CHARS
        before = "".join([*seen, pending[:at]]) if kind or may_be_bare else ""
        if (kind == "think" and before.strip()) or (rest.startswith("</s>") and "<s>" in before):
            continue
        if kind and not is_code(before) and (kind != "call" or has_tools):
            return kind, at
        if may_be_bare and may_lead_in(before, rest):
            bare = None if is_tool is None else read_bare_kind(rest, is_tool)
            if bare:
                return bare, at
            if bare is not None and len(rest) < DECIDED_CHARS:
                return "undecided", at
        if is_prefix(rest):
            return "undecided", at
    return "", 0


def read_bare_kind(text: str, is_tool: Callable[[str], bool]) -> str | None:
    """What begins without a tag: a `call`, `json` that may be one, or something else (None); empty if undecided."""
    if (found := JSON_CALL.match(text)) is None:
        return "call" if PYTHON_CALL.match(text) else ""
    at, is_named = found.end(), False
    while (item := JSON_ITEM.match(text, at)) is not None:
        key, name, at = item[1], item[2] or item[3], item.end()
        if key in ARGUMENTS:
            return "call"
        if key in NAMED and name:
            is_named = is_tool(name)
        if key not in (*NAMED, *OTHER_KEYS, "tool_calls") or (key in NAMED and name and not is_named):
            return None
    if text[at:].lstrip().startswith("}"):
        return "call" if is_named else None
    return None if text.startswith(('"', "'"), at) and len(text) - at > MAX_NAME_CHARS else "json"


def find_open_tag(text: str) -> int:
    """Where the end of a text may be the beginning of a tag; its length if it is not."""
    ends = range(max(0, len(text) - MAX_PREFIX_CHARS), len(text))
    return next((at for at in ends if is_prefix(text[at:])), len(text))


def split_channels(text: str) -> Iterator[tuple[str, str, str]]:
    """The channel, the content and the whole of each part."""
    for segment in SEGMENT.finditer(REPEATED_CHANNEL.sub(r"\1 \2", text)):
        yield (segment[1] or "").strip().partition(" ")[0], segment[2], segment[0]


def is_prefix(text: str) -> bool:
    """Whether more text could make this the beginning of a call or of thinking."""
    is_literal = len(text) <= MAX_PREFIX_CHARS and text.lower() in PREFIXES
    return is_literal or OPEN_TAG.fullmatch(text) is not None


def is_code(before: str) -> bool:
    """Whether what follows is in a fence, in code, in a quotation, in a comment or in quotes."""
    line = before.rpartition("\n")[2]
    return (
        before.count("```") % 2 == 1
        or before.count("~~~") % 2 == 1
        or line.replace("```", "").count("`") % 2 == 1
        or line.lstrip().startswith(">")
        or line[-1:] in ('"', "'", "\u201c")
        or (not line.strip() and ("\t" in line or len(line) >= CODE_INDENT) and before.strip() != "")
        or len(OPEN_QUOTATION.findall(before)) > len(END_QUOTATION.findall(before))
    )


def may_lead_in(before: str, rest: str) -> bool:
    """Whether JSON or a fence after this text could be a call: it is all of the answer, or was just announced."""
    if not before.strip():
        return BARE.match(rest) is not None or len(rest) < DECIDED_CHARS
    is_fence = before.endswith("\n") and "```".startswith(rest[:3])
    return is_fence and PROMISE.fullmatch(before) is not None and FUTURE.search(before) is not None
