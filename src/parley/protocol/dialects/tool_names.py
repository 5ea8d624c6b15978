"""What tools and their parameters are called in dialects C and D: lower-case names, camelCase parameters.

    there({"name": "Read", "input": {"file_path": "a", "offset": 3}})
        -> {"name": "read", "input": {"filePath": "a", "offset": 2}}
    here(...)
        -> the same back

Names of MCP and memory tools are nobody's to change, and neither is what is put into them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from parley.protocol.base import Json

AS_THEY_ARE = ("mcp__", "memory_", "ltm_")
SAME_KEYS = frozenset({"dangerouslyDisableSandbox"})
"""Parameters that are spelled so in both."""
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BAR = re.compile(r"(?<=[a-z0-9])_([a-z0-9])")


def is_ours(name: str) -> bool:
    return not name.startswith(AS_THEY_ARE)


def lower(name: str) -> str:
    """`WebFetch` -> `web_fetch`."""
    return _HUMP.sub("_", name).lower() if is_ours(name) else name


def upper(name: str) -> str:
    """`web_fetch` -> `WebFetch`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) if is_ours(name) else name


def camel(key: str) -> str:
    return _BAR.sub(lambda found: found[1].upper(), key)


def snake(key: str) -> str:
    return key if key in SAME_KEYS else _HUMP.sub("_", key).lower()


def shift(value: Any, by: int) -> Any:
    """A line number, counted from somewhere else. What is no number is left for the tool to refuse."""
    return value + by if isinstance(value, int) and not isinstance(value, bool) else value


def counted_from_0(value: Any) -> Any:
    return shift(value, -1)


def counted_from_1(value: Any) -> Any:
    return shift(value, 1)


Change = tuple[str, Callable[[Any], Any]]

THERE: dict[tuple[str, str], Change] = {
    ("Read", "offset"): ("offset", counted_from_0),
    ("Grep", "glob"): ("include", lambda value: value),
}
"""What a parameter becomes that is not only spelled in another way, by our tool and our name for it."""
HERE: dict[tuple[str, str], Change] = {
    ("Read", "offset"): ("offset", counted_from_1),
    ("Grep", "include"): ("glob", lambda value: value),
}


def to_dialect(block: Json) -> Json:
    """A `tool_use` block of ours as C and D spell it."""
    name = str(block["name"])
    if not is_ours(name):
        return block
    return {**block, "name": lower(name), "input": rename_call(name, block["input"], THERE, camel)}


def from_dialect(block: Json) -> Json:
    """A `tool_use` block of C or D as we spell it."""
    name = upper(str(block["name"]))
    if not is_ours(name):
        return block
    given = rename_call(name, block["input"], HERE, snake)
    if name == "Bash" and isinstance(given.get("command"), str) and isinstance(given.get("workdir"), str):
        given["command"] = f"cd {quote(given.pop('workdir'))} && {given['command']}"
    return {**block, "name": name, "input": given}


def rename_call(tool: str, given: Json, changes: dict[tuple[str, str], Change], spell: Callable[[str], str]) -> Json:
    found: Json = {}
    for key, value in given.items():
        name, change = changes.get((tool, key), (spell(key), None))
        found[name] = value if change is None else change(value)
    return found


def quote(path: str) -> str:
    """One word of a shell command."""
    return "'" + path.replace("'", "'\"'\"'") + "'"
