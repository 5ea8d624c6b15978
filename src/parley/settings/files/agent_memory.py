"""The memory that an agent keeps for itself from one session to the next: a folder with a file `MEMORY.md`.

    memory: user       <config>/agent-memory/NAME/
    memory: project    .claude/agent-memory/NAME/
    memory: local      .claude/agent-memory-local/NAME/

The agent reads the beginning of the file with its instructions. It writes to the folder with the
tools for files, under permission like any other write.
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


class Place(Struct, frozen=True, kw_only=True):
    folder: Path
    beneath: tuple[str, ...]
    """The folders that no link may lead out of."""


def place(scope: str, name: str, config: Path, project: str) -> Place | None:
    """Where an agent keeps its memory; None if there is no such scope."""
    tree = Path(project, ".claude")
    folders = {"user": config / "agent-memory", "project": tree / "agent-memory", "local": tree / "agent-memory-local"}
    if scope not in folders:
        return None
    # A name is what somebody wrote, and no way out of the folder.
    inner = re.sub(r"[^\w-]+", "-", name).strip("-") or "agent"
    return Place(folder=folders[scope] / inner, beneath=(str(config) if scope == "user" else project,))


def told(place: Place | None, denies: Callable[[str], bool]) -> tuple[str, str]:
    """What the agent is told, and what is wrong with its memory."""
    if place is None:
        return "", f"memory must be one of {', '.join(SCOPES)}"
    path = place.folder / FILE
    try:
        found = safe_read.read(path, place.beneath, MOST_BYTES)
        if denies(str(path)) or denies(found.real):
            return "", f"{path} is denied by a rule"
        kept = shortened(found.data.decode("utf-8-sig"))
    except safe_read.Absent:
        kept = ""
    except (safe_read.Unfit, UnicodeDecodeError) as flaw:
        return "", f"{path} is not read: {flaw}"
    says = f"{FILE} there begins:\n\n{kept}" if kept else f"{FILE} there is still to be written."
    return (
        f"You keep a memory in {place.folder} from one session to the next. Write to {FILE} there what will help you "
        f"with later work, keep it short and true, and put longer notes into files beside it. {says}"
    ), ""


def shortened(text: str) -> str:
    """Its beginning: so many lines, and so many characters."""
    return "\n".join(text.splitlines()[:MOST_LINES])[:MOST_CHARS].strip()
