"""Permission updates that a host may return with an approval, so the same call does not need approval again.

Each is a PermissionUpdate in wire format. Nothing is suggested that would not help: no rule for a file that rules
cannot approve, and none that would match more than it seems to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from parley.protocol.base import Json

SUBCOMMAND = re.compile(r"[a-z][a-z0-9_-]*")
"""A subcommand: `git push`, `npm test`."""
MAX_RULE_CHARACTERS = 500
ACCEPT_EDITS: Json = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}


def add_rules(*contents: tuple[str, str | None], destination: str = "localSettings") -> Json:
    listed = [
        {"toolName": tool} if spec is None else {"toolName": tool, "ruleContent": spec} for tool, spec in contents
    ]
    return {"type": "addRules", "rules": listed, "behavior": "allow", "destination": destination}


def suggest_read(*folders: str) -> tuple[Json, ...]:
    """A rule to read these folders; none for the root folder, which is too much for one click."""
    if any(folder == "/" or "*" in folder for folder in folders):
        return ()
    return (add_rules(*(("Read", f"/{folder}/**") for folder in folders), destination="session"),)


def suggest_edit(path: str, mode: str, *, inside: bool) -> tuple[Json, ...]:
    accept = () if mode in ("acceptEdits", "auto") else (ACCEPT_EDITS,)
    return accept if inside else (add_directory(os.path.dirname(path)), *accept)


def add_directory(folder: str) -> Json:
    return {"type": "addDirectories", "directories": [folder], "destination": "session"}


def suggest_fetch(host: str) -> tuple[Json, ...]:
    return (add_rules(("WebFetch", f"domain:{host}")),)


def suggest_tool(tool: str) -> tuple[Json, ...]:
    return (add_rules((tool, None)),)


def suggest_delegate(tool: str, name: Any) -> tuple[Json, ...]:
    if not isinstance(name, str) or not name or name.endswith(":*") or name == "*":
        return ()
    return (add_rules((tool, name)),)


def suggest_commands(*specs: str | None) -> tuple[Json, ...]:
    """Rules for commands; nothing if one of the commands cannot be matched by a rule."""
    return (add_rules(*(("Bash", spec) for spec in specs)),) if specs and all(specs) else ()


def suggest_write(specs: Sequence[str | None], path: str, mode: str) -> tuple[Json, ...]:
    """Rules for a line that writes in the working directories.

    The folder beside the rules is in recordings of Claude Code. It has no effect, so that people do not see it
    (`split_alternatives` in `cli/output.py`).
    """
    accept = () if mode in ("acceptEdits", "auto") else (ACCEPT_EDITS,)
    rules = suggest_commands(*specs)
    return (*rules, add_directory(os.path.dirname(path)), *accept) if rules else accept


def prefix_rules(commands: Sequence[Sequence[str]], text: str) -> list[str | None]:
    """`git push *` for a command with a subcommand, else the exact command; empty if one has no such rule."""
    found = [prefix_rule(words, text if len(commands) == 1 else " ".join(words)) for words in commands]
    return list(dict.fromkeys(found)) if all(found) else []


def prefix_rule(words: Sequence[str], text: str) -> str | None:
    if len(words) > 1 and SUBCOMMAND.fullmatch(words[1]) and SUBCOMMAND.fullmatch(words[0]):
        return f"{words[0]} {words[1]} *"
    return exact_rule(text)


def exact_rule(text: str) -> str | None:
    """A rule for exactly this text; None if it would match others as well."""
    return text if "*" not in text and "\\" not in text and len(text) <= MAX_RULE_CHARACTERS else None
