"""Where calls and thinking begin in a text that a model writes. Pure.

See also: `text_calls.py` reads the calls, `answer.py` holds the text back until they are complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

TAGGED = re.compile(
    r"<(?:antml:)?(?:tool_calls?|function_calls?|tool_use|function|invoke)\b[^>]*>"
    r"|<(?:antml:)?(?:function|invoke)\b|\[TOOL_CALLS\]|<\|(?:python_tag|python_start|tool_call\w*)\|>"
    r"|<｜tool▁calls?▁begin｜>|<\|(?:start\|>assistant<\|)?channel\|>[^<]*to="
)
"""How calls with tags begin."""
BARE = re.compile(r"```(?:json|tool_call|tool_code|tool|python)?\s*[\[{]|\{|\[\s*(?:\{|[A-Za-z_]\w*\()")
"""How calls without tags begin: JSON, perhaps in a fence, or a list of Python calls."""
SUSPECT = re.compile(r"[<`\[{]")
THINK = re.compile(r"<think(?:ing)?>\s*")
END_THINK = re.compile(r"</think(?:ing)?>\s*")
HARMONY = re.compile(r"<\|(?:channel|start)\|>")
SEGMENT = re.compile(
    r"(?:<\|start\|>assistant[^<]*)?(?:<\|channel\|>([^<]*)(?:<\|constrain\|>[^<]*)?)?<\|message\|>(.*?)"
    r"(?:<\|(?:end|return|call)\|>|(?=<\|start\|>|<\|channel\|>)|$)",
    re.S,
)
REPEATED_CHANNEL = re.compile(r"(\bto=[\w.:-]+)\s*<\|channel\|>(\w+)")
"""A call may name its channel before and after the tool."""
LITERALS = (
    *("<think>", "<thinking>", "</think>", "</thinking>", "<tool_call>", "<tool_calls>", "<function_call>"),
    *("<function_calls>", "<invoke", "<tool_use>", "<function=", "<invoke", "<function_calls>"),
    *("[TOOL_CALLS]", "<|python_tag|>", "<|python_start|>", "<|tool_call|>", "<|tool_calls_section_begin|>"),
    *("<|tool_call_start|>", "<|channel|>", "<|start|>", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"),
)
PREFIXES = frozenset(literal[:end] for literal in LITERALS for end in range(1, len(literal) + 1))
MARKS = {"think": THINK, "end_think": END_THINK, "harmony": HARMONY, "call": TAGGED}
OPENINGS = ("<t", "</t", "<f", "<i", "<a", "<|", "<｜", "[T")
"""How all of them begin."""
DECIDED_CHARS = 48
"""How much of JSON or of a fence shows whether it is a call."""
BARE_CALL = re.compile(
    r"(?:```\w*\s*)?(?:\[\s*)?\{\s*[\"'](?:name|tool|tool_name|function|function_name|type|id)[\"']\s*:"
    r"|(?:```\w*\s*)?\[\s*[A-Za-z_]\w*\(\s*\w+\s*="
)
MAX_PROMISE_CHARS = 200
PROMISE = re.compile(r"\s*[^\n`{}]{0,200}[:.]?\s*", re.S)
"""What may stand before a call in a fence: one line."""
FUTURE = re.compile(r"(?i)\b(?:i'll|i will|i am going to|i'm going to|let me|let's|i need to|calling)\b")


def find_mark(pending: str, seen: Sequence[str], *, has_tools: bool) -> tuple[str, int]:
    """What a text contains after what was seen, and where: a mark, something undecided, or nothing (an empty kind)."""
    for found in SUSPECT.finditer(pending):
        at, rest = found.start(), pending[found.start() :]
        kind = ""
        if rest.startswith(OPENINGS):
            kind = next((kind for kind, mark in MARKS.items() if mark.match(rest) is not None), "")
        may_be_bare = rest[0] != "<" and has_tools and len(seen) < MAX_PROMISE_CHARS
        before = "".join([*seen, pending[:at]]) if kind or may_be_bare else ""
        if kind == "think" and before.strip():
            continue
        if kind and not is_code(before) and (kind != "call" or has_tools):
            return kind, at
        if may_be_bare and may_lead_in(before, rest):
            if BARE_CALL.match(rest):
                return "call", at
            if len(rest) < DECIDED_CHARS:
                return "undecided", at
        if is_prefix(rest):
            return "undecided", at
    return "", 0


def find_open_tag(text: str) -> int:
    """Where the end of a text may be the beginning of a tag; its length if it is not."""
    ends = range(max(0, len(text) - len("</thinking>")), len(text))
    return next((at for at in ends if is_prefix(text[at:])), len(text))


def split_channels(text: str) -> Iterator[tuple[str, str, str]]:
    """The channel, the content and the whole of each part."""
    for segment in SEGMENT.finditer(REPEATED_CHANNEL.sub(r"\1 \2", text)):
        yield (segment[1] or "").strip().partition(" ")[0], segment[2], segment[0]


def is_prefix(text: str) -> bool:
    """Whether more text could make this the beginning of a call or of thinking."""
    return text in PREFIXES


def is_code(before: str) -> bool:
    """Whether what follows is in a fence, in code, in a quotation or in quotes."""
    line = before.rpartition("\n")[2]
    return (
        before.count("```") % 2 == 1
        or line.replace("```", "").count("`") % 2 == 1
        or line.lstrip().startswith(">")
        or line[-1:] in ('"', "'", "\u201c")
    )


def may_lead_in(before: str, rest: str) -> bool:
    """Whether JSON or a fence after this text could be a call: it is all of the answer, or was just announced."""
    if not before.strip():
        return BARE.match(rest) is not None or len(rest) < DECIDED_CHARS
    is_fence = before.endswith("\n") and "```".startswith(rest[:3])
    return is_fence and PROMISE.fullmatch(before) is not None and FUTURE.search(before) is not None
