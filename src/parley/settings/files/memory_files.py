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
from parley.settings.base import Flaw

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


class Places(Struct, frozen=True, kw_only=True):
    """Where to look."""

    cwd: str
    config: Path
    home: Path
    more_roots: tuple[str, ...] = ()
    """Folders that belong to the session beside the project."""
    user: bool = True
    project: bool = True
    local: bool = True


class Memory(Struct, frozen=True, kw_only=True):
    text: str = ""
    inner: str = ""
    """The text without its heading."""
    files: tuple[str, ...] = ()
    flaws: tuple[Flaw, ...] = ()


def gather(places: Places, denies: Callable[[str], bool] = lambda path: False) -> Memory:
    """Everything that is there, in a fixed order; each file once. `denies` says which paths may not be read."""
    work = Gathering(denies)
    if places.user:
        own = (str(places.config), str(places.home), *project_roots(places))
        work.take(places.config / "CLAUDE.md", None, own, places.home)
    for folder in folders(places.cwd):
        names = NAMES if places.project else ()
        for name in (*names, *((LOCAL_NAME,) if places.local else ())):
            work.take(Path(folder, name), project_roots(places), project_roots(places), places.home)
    return work.done()


def between(places: Places, path: str, denies: Callable[[str], bool]) -> list[Memory]:
    """What is said in the folders below the working directory, down to that of a file; nothing of one elsewhere."""
    top, inner = os.path.realpath(places.cwd), os.path.dirname(os.path.realpath(os.path.join(places.cwd, path)))
    if not inner.startswith(top.rstrip("/") + "/"):
        return []
    names = [*(NAMES if places.project else ()), *((LOCAL_NAME,) if places.local else ())]
    found: list[Memory] = []
    for folder in [Path(inner), *Path(inner).parents]:
        if str(folder) == top:
            break
        work = Gathering(denies)
        for name in names:
            work.take(folder / name, project_roots(places), project_roots(places), places.home)
        found.insert(0, work.done())
    return [memory for memory in found if memory.files or memory.flaws]


def project_roots(places: Places) -> tuple[str, ...]:
    return (folders(places.cwd)[0], *places.more_roots)


def folders(cwd: str) -> list[str]:
    """From the repository's root down to the working directory; without a repository that one alone."""
    path = Path(os.path.realpath(cwd))
    above = [path, *path.parents]
    root = next((place for place in above if os.path.lexists(place / ".git")), path)
    return [str(place) for place in reversed(above[: above.index(root) + 1])]


class Gathering:
    """A walk over files and what they bring in."""

    def __init__(self, denies: Callable[[str], bool]) -> None:
        self._denies = denies
        self._seen: set[tuple[int, int]] = set()
        self._parts: list[str] = []
        self._files: list[str] = []
        self._flaws: list[Flaw] = []
        self._left = MOST_BYTES

    def take(
        self, path: Path, beneath: tuple[str, ...] | None, imports: tuple[str, ...], home: Path, depth: int = 0
    ) -> None:
        """One file, if it is there, and behind it those that it brings in, which must lie in `imports`."""
        try:
            text = self._read(path, beneath)
        except safe_read.Absent:
            return
        except safe_read.Unfit as flaw:
            self._flaws.append(Flaw(path=str(path), text=f"{flaw}; it is not part of the memory"))
            return
        if text is None:
            return
        self._files.append(str(path))
        self._parts.append(f"{contents_of(str(path))}\n\n{text.strip()}")
        if depth < DEEPEST_IMPORT:
            for named in imported(text):
                self.take(resolved(named, path.parent, home), imports, imports, home, depth + 1)

    def _read(self, path: Path, beneath: tuple[str, ...] | None) -> str | None:
        """The text; None if it was seen already or is empty. Raises Unfit."""
        found = safe_read.read(path, beneath, min(MOST_FILE_BYTES, self._left))
        if self._denies(str(path)) or self._denies(found.real):
            raise safe_read.Unfit("is denied by a rule")
        if found.identity in self._seen:
            return None
        self._seen.add(found.identity)
        self._left -= len(found.data)
        try:
            text = found.data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise safe_read.Unfit("is no text in UTF-8") from None
        if "\0" in text:
            raise safe_read.Unfit("is no text")
        return text if text.strip() else None

    def done(self) -> Memory:
        inner = "\n\n".join(self._parts)
        text = f"{HEADING}\n\n{inner}" if inner else ""
        return Memory(text=text, inner=inner, files=tuple(self._files), flaws=tuple(self._flaws))


def contents_of(path: str) -> str:
    """What stands before the text of a file."""
    return f"Contents of {path}:"


def imported(text: str) -> Iterator[str]:
    """The paths behind `@`, but for those in code."""
    fence = ""
    for line in text.split("\n"):
        mark = re.match(FENCE, line)
        if mark and (not fence or (mark[1][0] == fence[0] and len(mark[1]) >= len(fence))):
            fence = "" if fence else mark[1]
        elif not fence:
            for found in re.finditer(IMPORT, re.sub(CODE_SPAN, lambda span: " " * len(span[0]), line)):
                yield found[1].replace("\\ ", " ").rstrip(".,;:!?)")


def resolved(named: str, folder: Path, home: Path) -> Path:
    """The file that an import means."""
    if named.startswith("~/"):
        return home / named[2:]
    return Path(os.path.normpath(folder / named))
