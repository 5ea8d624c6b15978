"""Whether a request matches a recorded one, and where it differs. Pure.

The messages are compared: roles, blocks, text, tool calls and results. The model name, system prompt, tools and limits
are not compared, because they contain the date, paths and the machine, or change between versions. These values vary
between runs and count as equal:

    cache markers, thinking signatures    dates and times    UUIDs and long hexadecimal ids
    the directories that the recording names (working directory, home, temporary directory)
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


def without_cache_marks(value: Any) -> Any:
    """The same JSON without cache markers, which move with every request."""
    if isinstance(value, list):
        return [without_cache_marks(item) for item in value]
    if isinstance(value, dict) and "cache_control" in value:
        return {key: item for key, item in value.items() if key != "cache_control"}
    if isinstance(value, dict) and isinstance(value.get("content"), list):
        return {**value, "content": without_cache_marks(value["content"])}
    return value


def normalize(messages: list[Json], places: Mapping[str, str]) -> Any:
    """The messages in the form that is compared."""
    # Longer paths first: the working directory may be inside the home directory.
    folders = sorted(((path, name) for name, path in places.items() if len(path) > 1), key=lambda row: -len(row[0]))
    return _normalize(
        [{**message, "content": _normalize_content(message.get("content"))} for message in messages], folders
    )


def _normalize_content(content: Any) -> Any:
    """A string is short for one text block."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _normalize(value: Any, folders: list[tuple[str, str]]) -> Any:
    if isinstance(value, str):
        for path, name in folders:
            value = re.sub(rf"{re.escape(path)}(?![\w.-])", f"<{name}>", value)
        for pattern, mark in VARYING:
            value = re.sub(pattern, mark, value)
        return value
    if isinstance(value, list):
        return [_normalize(item, folders) for item in value]
    if isinstance(value, dict):
        return {key: _normalize(item, folders) for key, item in value.items() if key not in UNCOMPARED}
    return value


def describe_difference(recorded: Any, actual: Any, where: str = "messages") -> str | None:
    """A description of the first difference between two normalized values; None if they are equal."""
    if isinstance(recorded, dict) and isinstance(actual, dict):
        keys = list(dict.fromkeys([*recorded, *actual]))
        inner = (describe_difference(recorded.get(key), actual.get(key), f"{where}.{key}") for key in keys)
        return next((found for found in inner if found), None)
    if isinstance(recorded, list) and isinstance(actual, list):
        pairs = enumerate(zip(recorded, actual, strict=False))
        inner = (describe_difference(one, other, f"{where}[{at}]") for at, (one, other) in pairs)
        if (found := next((found for found in inner if found), None)) is not None:
            return found
        if len(recorded) != len(actual):
            return f"{where} has {len(recorded)} items in the recording and {len(actual)} in this conversation"
        return None
    if recorded == actual:
        return None
    begin = _first_difference(recorded, actual) if isinstance(recorded, str) and isinstance(actual, str) else 0
    return f"{where} is {_show(recorded, begin)} in the recording and {_show(actual, begin)} in this conversation"


def _first_difference(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _show(value: Any, begin: int) -> str:
    """A value, or the part of a text around an offset."""
    if value is None:
        return "absent"
    if not isinstance(value, str):
        return repr(value)[:SHOWN_CHARS]
    start = max(0, begin - SHOWN_CHARS // 2)
    part = value[start : start + SHOWN_CHARS]
    return ("…" if start else "") + repr(part) + ("…" if start + SHOWN_CHARS < len(value) else "")
