"""The memory of an agent across sessions: a folder with a file `MEMORY.md`.

    memory: user       <config>/agent-memory/NAME/
    memory: project    .claude/agent-memory/NAME/
    memory: local      .claude/agent-memory-local/NAME/

The beginning of the file is part of the agent's instructions. The agent writes to the folder with the
file tools, which need permission as for any other write.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from parley.protocol.base import Struct
from parley.settings import safe_read

MOST_BYTES = 200_000
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
        found = safe_read.read_file(path, memory.beneath, MOST_BYTES)
        if denies(str(path)) or denies(found.real):
            return "", f"{path} is denied by a rule"
        content = shorten(found.data.decode("utf-8-sig"))
    except safe_read.MissingFile:
        content = ""
    except safe_read.UnreadableFile as exc:
        return "", f"{path} {exc}"
    except UnicodeDecodeError:
        return "", f"{path} {safe_read.NOT_UTF8}"
    current = f"{FILE} there begins:\n\n{content}" if content else f"The file {FILE} does not exist yet."
    return (
        f"You keep a memory in {memory.folder} from one session to the next. Write to {FILE} there what will help you "
        f"with later work, keep it short and true, and put longer notes into files beside it. {current}"
    ), ""


def shorten(text: str) -> str:
    """Cut a text to the maximum number of lines and characters."""
    return "\n".join(text.splitlines()[:MOST_LINES])[:MOST_CHARS].strip()
