"""Memory files: what the person and the project want a model to know from the start.

    <config>/CLAUDE.md                                    the person's
    CLAUDE.md, AGENTS.md, .claude/CLAUDE.md               the project's: in the repository's root, and in
    CLAUDE.local.md                                       every folder from there down to the working directory

`@path` in such a file brings in another file. They are text and can do no harm of their
own, so they need no trust; but a file of the project brings in only files of the project,
wherever a link leads, and none that a rule denies.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from parley.protocol.base import Struct
from parley.settings import safe_read
from parley.settings.base import SettingsProblem

NAMES = ("CLAUDE.md", "AGENTS.md", ".claude/CLAUDE.md")
LOCAL_NAME = "CLAUDE.local.md"
DEEPEST_IMPORT = 5
MOST_FILE_BYTES = 100_000
MOST_BYTES = 400_000
# Compiled where they are used: most sessions have no memory file, and it takes a millisecond.
IMPORT = r"(?:^|(?<=\s))@((?:\\ |[^\s\\`])+)"
CODE_SPAN = r"`[^`\n]*`"
FENCE = r" {0,3}(```+|~~~+)"
HEADING = "Instructions from files of the user and the project. Follow them where they apply to the task."


class MemoryPaths(Struct, frozen=True, kw_only=True):
    """Where to look."""

    cwd: str
    config: Path
    home: Path
    more_roots: tuple[str, ...] = ()
    """Folders that belong to the session beside the project."""
    user: bool = True
    project: bool = True
    local: bool = True


class MemoryText(Struct, frozen=True, kw_only=True):
    text: str = ""
    nested: str = ""
    """The text without its heading."""
    files: tuple[str, ...] = ()
    problems: tuple[SettingsProblem, ...] = ()


def load_memory(places: MemoryPaths, denies: Callable[[str], bool] = lambda path: False) -> MemoryText:
    """Everything that is there, in a fixed order; each file once. `denies` says which paths may not be read."""
    work = MemoryLoader(denies)
    if places.user:
        own = (str(places.config), str(places.home), *project_roots(places))
        work.add_file(places.config / "CLAUDE.md", None, own, places.home)
    for folder in folders(places.cwd):
        names = NAMES if places.project else ()
        for name in (*names, *((LOCAL_NAME,) if places.local else ())):
            work.add_file(Path(folder, name), project_roots(places), project_roots(places), places.home)
    return work.result()


def load_between(places: MemoryPaths, path: str, denies: Callable[[str], bool]) -> list[MemoryText]:
    """What is said in the folders below the working directory, down to that of a file; nothing of one elsewhere."""
    top, inner = os.path.realpath(places.cwd), os.path.dirname(os.path.realpath(os.path.join(places.cwd, path)))
    if not inner.startswith(top.rstrip("/") + "/"):
        return []
    names = [*(NAMES if places.project else ()), *((LOCAL_NAME,) if places.local else ())]
    found: list[MemoryText] = []
    for folder in [Path(inner), *Path(inner).parents]:
        if str(folder) == top:
            break
        work = MemoryLoader(denies)
        for name in names:
            work.add_file(folder / name, project_roots(places), project_roots(places), places.home)
        found.insert(0, work.result())
    return [memory for memory in found if memory.files or memory.problems]


def project_roots(places: MemoryPaths) -> tuple[str, ...]:
    return (folders(places.cwd)[0], *places.more_roots)


def folders(cwd: str) -> list[str]:
    """From the repository's root down to the working directory; without a repository that one alone."""
    path = Path(os.path.realpath(cwd))
    above = [path, *path.parents]
    root = next((place for place in above if os.path.lexists(place / ".git")), path)
    return [str(place) for place in reversed(above[: above.index(root) + 1])]


class MemoryLoader:
    """A walk over files and what they bring in."""

    def __init__(self, denies: Callable[[str], bool]) -> None:
        self._denies = denies
        self._seen: set[tuple[int, int]] = set()
        self._parts: list[str] = []
        self._files: list[str] = []
        self._problems: list[SettingsProblem] = []
        self._left_bytes = MOST_BYTES

    def add_file(
        self, path: Path, beneath: tuple[str, ...] | None, imports: tuple[str, ...], home: Path, depth: int = 0
    ) -> None:
        """One file, if it is there, and behind it those that it brings in, which must lie in `imports`."""
        try:
            text = self._read(path, beneath)
        except safe_read.MissingFile:
            return
        except safe_read.UnreadableFile as exc:
            self._problems.append(SettingsProblem(path=str(path), text=f"{exc}; it is not part of the memory"))
            return
        if text is None:
            return
        self._files.append(str(path))
        self._parts.append(f"{heading_for(str(path))}\n\n{text.strip()}")
        if depth < DEEPEST_IMPORT:
            for named in find_imports(text):
                self.add_file(resolve_import(named, path.parent, home), imports, imports, home, depth + 1)

    def _read(self, path: Path, beneath: tuple[str, ...] | None) -> str | None:
        """The text; None if it was seen already or is empty. Raises Unfit."""
        found = safe_read.read_file(path, beneath, min(MOST_FILE_BYTES, self._left_bytes))
        if self._denies(str(path)) or self._denies(found.real):
            raise safe_read.UnreadableFile("is denied by a rule")
        if found.identity in self._seen:
            return None
        self._seen.add(found.identity)
        self._left_bytes -= len(found.data)
        try:
            text = found.data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise safe_read.UnreadableFile("is no text in UTF-8") from None
        if "\0" in text:
            raise safe_read.UnreadableFile("is no text")
        return text if text.strip() else None

    def result(self) -> MemoryText:
        inner = "\n\n".join(self._parts)
        text = f"{HEADING}\n\n{inner}" if inner else ""
        return MemoryText(text=text, nested=inner, files=tuple(self._files), problems=tuple(self._problems))


def heading_for(path: str) -> str:
    """What stands before the text of a file."""
    return f"Contents of {path}:"


def find_imports(text: str) -> Iterator[str]:
    """The paths behind `@`, but for those in code."""
    fence = ""
    for line in text.split("\n"):
        mark = re.match(FENCE, line)
        if mark and (not fence or (mark[1][0] == fence[0] and len(mark[1]) >= len(fence))):
            fence = "" if fence else mark[1]
        elif not fence:
            for found in re.finditer(IMPORT, re.sub(CODE_SPAN, lambda span: " " * len(span[0]), line)):
                yield found[1].replace("\\ ", " ").rstrip(".,;:!?)")


def resolve_import(named: str, folder: Path, home: Path) -> Path:
    """The file that an import means."""
    if named.startswith("~/"):
        return home / named[2:]
    return Path(os.path.normpath(folder / named))
