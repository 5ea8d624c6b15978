"""The names of tools and parameters in the dialects miriad and jsonrpc: lower-case tools, camelCase parameters.

    to_dialect({"name": "Read", "input": {"file_path": "a", "offset": 3}})
        -> {"name": "read", "input": {"filePath": "a", "offset": 2}}
    from_dialect(...)
        -> the same back

MCP and memory tools keep their names and inputs. A new tool needs no entry here: only parameters that differ by more
than their spelling have one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from parley.protocol.base import Json

AS_THEY_ARE = ("mcp__", "memory_", "ltm_")
SAME_KEYS = frozenset({"dangerouslyDisableSandbox"})
"""Parameters that have the same spelling in both."""
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
    """A line number with another origin. Other values are left for the tool to refuse."""
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
"""Parameters that differ by more than their spelling, by our tool and parameter name."""
HERE: dict[tuple[str, str], Change] = {
    ("Read", "offset"): ("offset", counted_from_1),
    ("Grep", "include"): ("glob", lambda value: value),
}


def to_dialect(block: Json) -> Json:
    """A `tool_use` block in the spelling of the dialects."""
    name = str(block["name"])
    if not is_ours(name):
        return block
    return {**block, "name": lower(name), "input": rename_call(name, block["input"], THERE, camel)}


def from_dialect(block: Json) -> Json:
    """A `tool_use` block of the dialects in our spelling."""
    name = upper(str(block["name"]))
    if not is_ours(name):
        return block
    return {**block, "name": name, "input": fold_workdir(rename_call(name, block["input"], HERE, snake))}


def fold_workdir(given: Json) -> Json:
    """A command with a folder to run in, as one command line."""
    command, folder = given.get("command"), given.get("workdir")
    if not isinstance(command, str) or not isinstance(folder, str):
        return given
    rest = {key: value for key, value in given.items() if key != "workdir"}
    return {**rest, "command": f"cd {quote(folder)} && {command}"}


def rename_call(tool: str, given: Json, changes: dict[tuple[str, str], Change], spell: Callable[[str], str]) -> Json:
    found: Json = {}
    for key, value in given.items():
        name, change = changes.get((tool, key), (spell(key), None))
        found[name] = value if change is None else change(value)
    return found


def quote(path: str) -> str:
    """One word of a shell command."""
    return "'" + path.replace("'", "'\"'\"'") + "'"
