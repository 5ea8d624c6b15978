"""Whether a request is the one on a tape, and where it departs from it.

Compared are the messages: their roles, their blocks, the text, the calls and the results in them. Not compared are
the model's name, the instructions, the tools on offer and the limits, because they name the day, the folder and the
machine, or may well change between two versions. In what is compared these vary from run to run and count as
the same:

    cache markers, signatures of thoughts    dates and times    UUIDs and long hexadecimal ids
    the folders that a tape knows by name (working directory, home, temporary folder), each as itself

All of it is pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from parley.protocol.base import Json

UNCOMPARED = ("cache_control", "signature")
VARYING = (
    (r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b", "<id>"),
    (r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{12,}\b", "<id>"),
    (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?", "<time>"),
    (r"\b\d\d:\d\d:\d\d(?:\.\d+)?\b", "<time>"),
)
SHOWN_CHARS = 40


def unmarked(value: Any) -> Any:
    """The same JSON without cache markers: they move on with every request."""
    if isinstance(value, list):
        return [unmarked(item) for item in value]
    if isinstance(value, dict) and "cache_control" in value:
        return {key: item for key, item in value.items() if key != "cache_control"}
    if isinstance(value, dict) and isinstance(value.get("content"), list):
        return {**value, "content": unmarked(value["content"])}
    return value


def normal(messages: list[Json], places: Mapping[str, str]) -> Any:
    """What is compared of the messages."""
    # The deeper folder first: the working directory may lie below the home.
    folders = sorted(((path, name) for name, path in places.items() if len(path) > 1), key=lambda row: -len(row[0]))
    return _normal([{**message, "content": _blocks(message.get("content"))} for message in messages], folders)


def _blocks(content: Any) -> Any:
    """A text alone is short for one block."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _normal(value: Any, folders: list[tuple[str, str]]) -> Any:
    if isinstance(value, str):
        for path, name in folders:
            value = re.sub(rf"{re.escape(path)}(?![\w.-])", f"<{name}>", value)
        for pattern, mark in VARYING:
            value = re.sub(pattern, mark, value)
        return value
    if isinstance(value, list):
        return [_normal(item, folders) for item in value]
    if isinstance(value, dict):
        return {key: _normal(item, folders) for key, item in value.items() if key not in UNCOMPARED}
    return value


def departure(tape: Any, asked: Any, where: str = "messages") -> str | None:
    """Where two normal values differ first, in words; None if they do not."""
    if isinstance(tape, dict) and isinstance(asked, dict):
        keys = list(dict.fromkeys([*tape, *asked]))
        inner = (departure(tape.get(key), asked.get(key), f"{where}.{key}") for key in keys)
        return next((found for found in inner if found), None)
    if isinstance(tape, list) and isinstance(asked, list):
        pairs = enumerate(zip(tape, asked, strict=False))
        inner = (departure(one, other, f"{where}[{at}]") for at, (one, other) in pairs)
        if (found := next((found for found in inner if found), None)) is not None:
            return found
        if len(tape) != len(asked):
            return f"{where} has {len(tape)} on the tape and {len(asked)} here"
        return None
    if tape == asked:
        return None
    begin = _first_difference(tape, asked) if isinstance(tape, str) and isinstance(asked, str) else 0
    return f"{where} is {_shown(tape, begin)} on the tape and {_shown(asked, begin)} here"


def _first_difference(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _shown(value: Any, begin: int) -> str:
    """A value, or the part of a text around a place."""
    if value is None:
        return "absent"
    if not isinstance(value, str):
        return repr(value)[:SHOWN_CHARS]
    start = max(0, begin - SHOWN_CHARS // 2)
    part = value[start : start + SHOWN_CHARS]
    return ("…" if start else "") + repr(part) + ("…" if start + SHOWN_CHARS < len(value) else "")
