"""Load subagents from files: `agents/NAME.md` in the config directory and in the project's `.claude`.

    ---
    name: reviewer
    description: Reads a change and says what is wrong with it
    tools: Read, Grep
    ---
    You review changes. ...

A definition is text and needs no trust. Keys that run something or widen permissions (`hooks`,
`mcpServers`, `initialPrompt`, `permissionMode`) take effect in a project's file only if the user trusts
the project, and never in a plugin's. An invalid file is skipped with a warning.

The memory of an agent across sessions is a folder with a file `MEMORY.md`:

    memory: user       <config>/agent-memory/NAME/
    memory: project    .claude/agent-memory/NAME/
    memory: local      .claude/agent-memory-local/NAME/

The beginning of the file is part of the agent's instructions. The agent writes to the folder with the
file tools, which need permission as for any other write.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from parley.errors import UsageError
from parley.protocol.base import Json, Struct, convert
from parley.protocol.messages.requests import AgentDefinition
from parley.settings import safe_read
from parley.settings.base import SettingsProblem
from parley.settings.files import frontmatter

MOST_BYTES = 200_000
MOST_FILES = 500
LISTS = ("tools", "disallowedTools", "skills")
WIDENING = ("permissionMode", "hooks", "mcpServers", "initialPrompt")
NOT_TRUSTED = "the project is not trusted"
OF_PLUGIN = "an agent of a plugin cannot set it"
NOT_OBSERVED = "observers are not supported"
KNOWN = frozenset(AgentDefinition.__struct_fields__)


def load_agents(
    folder: Path,
    beneath: tuple[str, ...] | None,
    *,
    withheld: str = "",
    obstacle: Callable[[bytes], str | None] = lambda data: None,
) -> tuple[dict[str, AgentDefinition], list[SettingsProblem]]:
    """Return the agents of a folder and its subfolders, and the problems of invalid files.

    `withheld`: why keys that widen permissions have no effect, or empty. `obstacle`: the same for one file's content.
    """
    found: dict[str, AgentDefinition] = {}
    problems: list[SettingsProblem] = []
    for path in list_files(folder):
        try:
            file = safe_read.read_file(path, beneath, MOST_BYTES)
            reason = withheld or obstacle(file.data) or ""
            name, kind, dropped = parse_agent(file.text(), path.stem, trusted=not reason)
        except (safe_read.UnreadableFile, frontmatter.FrontmatterError, msgspec.ValidationError) as exc:
            problems.append(SettingsProblem(path=str(path), text=f"not used as an agent: {exc}"))
            continue
        if kind.observer or kind.observerMessage:
            problems.append(SettingsProblem(path=str(path), text=f"`observer` has no effect: {NOT_OBSERVED}"))
        if dropped:
            text = f"{', '.join(dropped)} {'has' if len(dropped) == 1 else 'have'} no effect: {reason}"
            problems.append(SettingsProblem(path=str(path), text=text))
        if name in found:
            problems.append(
                SettingsProblem(path=str(path), text=f"not used as an agent: another agent is named {name!r}")
            )
            continue
        found[name] = kind
    return found, problems


def list_files(folder: Path) -> list[Path]:
    """List the Markdown files below a folder, without following links to folders."""
    found: list[Path] = []
    for parent, folders, names in os.walk(folder):
        folders.sort()
        found += [Path(parent, name) for name in sorted(names) if name.endswith(".md")]
        if len(found) >= MOST_FILES:
            break
    return found[:MOST_FILES]


def parse_agent(text: str, stem: str, *, trusted: bool) -> tuple[str, AgentDefinition, list[str]]:
    """Return the name, the definition and the keys without effect. Raises FrontmatterError or ValidationError."""
    head, body = frontmatter.split_frontmatter(text)
    name = head.get("name", stem)
    if not isinstance(name, str) or not name.strip():
        raise frontmatter.FrontmatterError("`name` must be a non-empty string")
    if not isinstance(head.get("description"), str):
        raise frontmatter.FrontmatterError("`description` is missing or not a string")
    dropped = [] if trusted else [key for key in WIDENING if head.get(key)]
    fields: Json = {key: value for key, value in head.items() if key in KNOWN and key not in dropped}
    for key in LISTS:
        if key in fields:
            fields[key] = frontmatter.parse_names(fields[key])
    if isinstance(fields.get("mcpServers"), dict):
        fields["mcpServers"] = [{name: config} if config else name for name, config in fields["mcpServers"].items()]
    kind: AgentDefinition = convert({**fields, "prompt": body}, AgentDefinition)
    return name.strip(), kind, dropped


def from_command_line(text: str | None) -> Mapping[str, AgentDefinition]:
    """Parse `--agents`, which is JSON or the path of a file. Raises UsageError."""
    kinds: dict[str, AgentDefinition] = {}
    for name, fields in read_command_line(text).items():
        try:
            kinds[name] = convert(fields, AgentDefinition)
        except msgspec.ValidationError as exc:
            raise UsageError(f"option '--agents': invalid agent {name!r}: {exc}") from None
    return kinds


def list_unused(text: str) -> list[str]:
    """A warning for every field of `--agents` that has no effect. Raises UsageError."""
    found: list[str] = []
    for name, fields in read_command_line(text).items():
        for key in fields if isinstance(fields, dict) else ():
            if key in ("observer", "observerMessage"):
                found.append(f"option '--agents': {name}.{key} has no effect: {NOT_OBSERVED}")
            elif key not in KNOWN:
                found.append(f"option '--agents': {name}.{key} is unknown and has no effect")
    return found


def read_command_line(text: str | None) -> dict[str, Any]:
    """Raises UsageError."""
    if text is None:
        return {}
    try:
        read = text if text.lstrip().startswith("{") else Path(text).read_bytes()
        found: dict[str, Any] = msgspec.json.decode(read, type=dict[str, Any])
    except (msgspec.DecodeError, OSError, UnicodeDecodeError) as exc:
        raise UsageError(
            f"option '--agents' must be a JSON object of agents by name, or a file with one: {exc}"
        ) from None
    return found


MEMORY_BYTES = 200_000
MOST_LINES = 200
MOST_CHARS = 25_000
FILE = "MEMORY.md"
SCOPES = ("user", "project", "local")


class AgentMemoryPath(Struct, frozen=True, kw_only=True):
    """The memory folder of an agent."""

    folder: Path
    beneath: tuple[str, ...]
    """Links must not lead out of these folders."""


def find_path(scope: str, name: str, config: Path, project: str) -> AgentMemoryPath | None:
    """Return an agent's memory folder, or None for an unknown scope."""
    tree = Path(project, ".claude")
    folders = {"user": config / "agent-memory", "project": tree / "agent-memory", "local": tree / "agent-memory-local"}
    if scope not in folders:
        return None
    # The name comes from a file and must not lead out of the folder.
    inner = re.sub(r"[^\w-]+", "-", name).strip("-") or "agent"
    return AgentMemoryPath(folder=folders[scope] / inner, beneath=(str(config) if scope == "user" else project,))


def load_text(memory: AgentMemoryPath | None, denies: Callable[[str], bool]) -> tuple[str, str]:
    """Return the text for the agent's instructions, and a problem; one of them is empty."""
    if memory is None:
        return "", f"memory must be one of {', '.join(SCOPES)}"
    path = memory.folder / FILE
    try:
        found = safe_read.read_file(path, memory.beneath, MEMORY_BYTES)
        if denies(str(path)) or denies(found.real):
            return "", f"{path} is denied by a rule"
        text = found.text()
        content = "\n".join(text.splitlines()[:MOST_LINES])[:MOST_CHARS].strip()
    except safe_read.MissingFile:
        content = ""
    except safe_read.UnreadableFile as exc:
        return "", f"{path} {exc}"
    current = f"{FILE} there begins:\n\n{content}" if content else f"The file {FILE} does not exist yet."
    return (
        f"You keep a memory in {memory.folder} from one session to the next. Write to {FILE} there what will help you "
        f"with later work, keep it short and true, and put longer notes into files beside it. {current}"
    ), ""
