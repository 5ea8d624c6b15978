"""Subagents that people define in files: `agents/NAME.md` in the config folder and in the project's `.claude`.

    ---
    name: reviewer
    description: Reads a change and says what is wrong with it
    tools: Read, Grep
    ---
    You review changes. ...

They are text and need no trust. What acts, speaks for the person, or widens what a session may
do (`hooks`, `mcpServers`, `initialPrompt`, `permissionMode`) counts in a project's file only if
the person trusts the project, and never in a plugin's. A file that cannot be used costs itself,
and is complained about.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from parley.errors import UsageError
from parley.protocol.base import Json, convert
from parley.protocol.messages.requests import AgentDefinition
from parley.settings import safe_read
from parley.settings.base import Flaw
from parley.settings.files import frontmatter

MOST_BYTES = 200_000
MOST_FILES = 500
LISTS = ("tools", "disallowedTools", "skills")
WIDENING = ("permissionMode", "hooks", "mcpServers", "initialPrompt")
NOT_TRUSTED = "the project is not trusted"
OF_PLUGIN = "an agent of a plugin may not bring it"
KNOWN = frozenset(AgentDefinition.__struct_fields__)


def gather(
    folder: Path,
    beneath: tuple[str, ...] | None,
    *,
    withheld: str = "",
    obstacle: Callable[[bytes], str | None] = lambda data: None,
) -> tuple[dict[str, AgentDefinition], list[Flaw]]:
    """The agents of one folder and those below it, and what is wrong with the rest.

    `withheld` is the reason why what widens does not count, if it does not; `obstacle` says it file by file."""
    found: dict[str, AgentDefinition] = {}
    flaws: list[Flaw] = []
    for path in files_in(folder):
        try:
            data = safe_read.read(path, beneath, MOST_BYTES).data
            reason = withheld or obstacle(data) or ""
            name, kind, dropped = read(data.decode("utf-8-sig"), path.stem, trusted=not reason)
        except (safe_read.Unfit, UnicodeDecodeError, frontmatter.Broken, msgspec.ValidationError) as flaw:
            flaws.append(Flaw(path=str(path), text=f"is not used as an agent: {flaw}"))
            continue
        if dropped:
            flaws.append(Flaw(path=str(path), text=f"without effect: {', '.join(dropped)}: {reason}"))
        if name in found:
            flaws.append(Flaw(path=str(path), text=f"is not used as an agent: there is another called {name!r}"))
            continue
        found[name] = kind
    return found, flaws


def files_in(folder: Path) -> list[Path]:
    """No link is followed."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders.sort()
        found += [Path(place, name) for name in sorted(names) if name.endswith(".md")]
        if len(found) >= MOST_FILES:
            break
    return found[:MOST_FILES]


def read(text: str, stem: str, *, trusted: bool) -> tuple[str, AgentDefinition, list[str]]:
    """Its name, what it is, and what of it does not count. Raises Broken or ValidationError."""
    head, body = frontmatter.read(text)
    name = head.get("name", stem)
    if not isinstance(name, str) or not name.strip():
        raise frontmatter.Broken("its name is none")
    if not isinstance(head.get("description"), str):
        raise frontmatter.Broken("it has no description")
    dropped = [] if trusted else [key for key in WIDENING if head.get(key)]
    fields: Json = {key: value for key, value in head.items() if key in KNOWN and key not in dropped}
    for key in LISTS:
        if key in fields:
            fields[key] = frontmatter.names(fields[key])
    if isinstance(fields.get("mcpServers"), dict):
        fields["mcpServers"] = [{name: config} if config else name for name, config in fields["mcpServers"].items()]
    kind: AgentDefinition = convert({**fields, "prompt": body}, AgentDefinition)
    return name.strip(), kind, dropped


def on_command_line(text: str | None) -> Mapping[str, AgentDefinition]:
    """What `--agents` says, as JSON or in a file. Raises UsageError."""
    if text is None:
        return {}
    try:
        read = text if text.lstrip().startswith("{") else Path(text).read_bytes()
        given: dict[str, Any] = msgspec.json.decode(read, type=dict[str, Any])
    except (msgspec.DecodeError, OSError, UnicodeDecodeError) as flaw:
        raise UsageError(f"option '--agents' is no object of agents: {flaw}") from None
    kinds: dict[str, AgentDefinition] = {}
    for name, fields in given.items():
        try:
            kinds[name] = convert(fields, AgentDefinition)
        except msgspec.ValidationError as flaw:
            raise UsageError(f"option '--agents': {name!r} is no agent: {flaw}") from None
    return kinds
