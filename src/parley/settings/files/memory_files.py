"""Load memory files: instructions of the user and the project for the model.

    <config>/CLAUDE.md                                    the user's
    AGENTS.md, CLAUDE.md, .claude/CLAUDE.md               the project's, in the repository's root and in
    CLAUDE.local.md                                       every folder from there down to the working directory

`@path` in such a file imports another file. The files are text and need no trust, but a file of the
project can import only files of the project (links are resolved first), and none that a rule denies.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from parley.protocol.base import Struct
from parley.settings import safe_read
from parley.settings.base import SettingsProblem
from parley.settings.safe_read import HOST_TREE, FileTree
from parley.workspace.sensitive_names import holds_keys

NAMES = ("AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md")
"""A later file takes precedence, so what is for all agents comes before what is for this one."""
LOCAL_NAME = "CLAUDE.local.md"
DEEPEST_IMPORT = 5
MOST_FILE_BYTES = 100_000
MOST_BYTES = 400_000
# Compiled on first use: it takes a millisecond, and most sessions have no memory file.
IMPORT = r"(?:^|(?<=\s))@((?:\\ |[^\s\\`])+)"
CODE_SPAN = r"`[^`\n]*`"
FENCE = r" {0,3}(```+|~~~+)"
MANAGED_HEADING = "Instructions of the organization:"
HEADING = (
    "Instructions from files of the user and the project. Follow them where they apply to the task; if two differ, the "
    "later one takes precedence."
)


class MemoryPaths(Struct, frozen=True, kw_only=True):
    """Where to look for memory files."""

    cwd: str
    config: Path
    home: Path
    more_roots: tuple[str, ...] = ()
    """Folders of the session in addition to the project."""
    user: bool = True
    project: bool = True
    local: bool = True
    excluded: tuple[str, ...] = ()
    """Paths or glob patterns of files that are not loaded."""
    user_excluded: tuple[str, ...] = ()
    """The same for the user's own file and its imports."""
    managed: str = ""
    """Instructions of the organization, which come first and cannot be excluded."""
    tree: FileTree = HOST_TREE
    """Where the project is."""

    def names(self) -> tuple[str, ...]:
        """The files to look for in a folder."""
        return (*(NAMES if self.project else ()), *((LOCAL_NAME,) if self.local else ()))

    def excludes(self, path: str) -> bool:
        return matches_any(path, self.tree.realpath(path), self.excluded)

    def excludes_of_user(self, path: str) -> bool:
        return matches_any(path, os.path.realpath(path), self.user_excluded)


class MemoryText(Struct, frozen=True, kw_only=True):
    """The text of memory files for the model."""

    text: str = ""
    nested: str = ""
    """The text without its heading."""
    files: tuple[str, ...] = ()
    imports: tuple[tuple[str, str], ...] = ()
    """The files that others import, each with the file that imports it."""
    problems: tuple[SettingsProblem, ...] = ()


def load_memory(
    paths: MemoryPaths,
    denies: Callable[[str], bool] = lambda path: False,
    denies_user: Callable[[str], bool] | None = None,
) -> MemoryText:
    """Load all memory files in a fixed order, each once. `denies` returns whether a path must not be read.

    `denies_user`: the same for the user's own file and its imports, if it differs."""
    loader = MemoryLoader(denies_user or denies, paths.excludes_of_user if paths.user_excluded else None, HOST_TREE)
    if paths.managed.strip():
        loader.add_text(f"{MANAGED_HEADING}\n\n{paths.managed.strip()}")
    chain = folders(paths.cwd, paths.tree)
    roots = (chain[0], *paths.more_roots)
    if paths.user:
        own = (str(paths.config), str(paths.home), *(() if paths.tree.is_remote else roots))
        loader.add_file(paths.config / "CLAUDE.md", None, own, paths.home)
    loader.tree, loader.denies, loader.excludes = paths.tree, denies, paths.excludes if paths.excluded else None
    for folder in chain:
        for name in paths.names():
            loader.add_file(Path(folder, name), roots, roots, paths.home)
    return loader.result()


def load_between(paths: MemoryPaths, path: str, denies: Callable[[str], bool]) -> list[MemoryText]:
    """Load the memory files between the working directory and a file below it; empty for a file elsewhere."""
    tree = paths.tree
    top, inner = tree.realpath(paths.cwd), os.path.dirname(tree.realpath(os.path.join(paths.cwd, path)))
    if not inner.startswith(top.rstrip("/") + "/"):
        return []
    roots = (folders(paths.cwd, tree)[0], *paths.more_roots)
    found: list[MemoryText] = []
    for folder in [Path(inner), *Path(inner).parents]:
        if str(folder) == top:
            break
        loader = MemoryLoader(denies, paths.excludes if paths.excluded else None, tree)
        for name in paths.names():
            loader.add_file(folder / name, roots, roots, paths.home)
        found.insert(0, loader.result())
    return [memory for memory in found if memory.files or memory.problems]


def matches_any(path: str, real: str, patterns: tuple[str, ...]) -> bool:
    from fnmatch import fnmatchcase

    return any(fnmatchcase(name, pattern) for name in {path, real} for pattern in map(normalize_glob, patterns))


def normalize_glob(pattern: str) -> str:
    """`**/x` also matches at the root; `*` of fnmatch crosses slashes, so `**` is `*`."""
    return pattern.replace("**/", "*/" if pattern.startswith("/") else "*").replace("**", "*")


def folders(cwd: str, tree: FileTree = HOST_TREE) -> list[str]:
    """List the folders from the repository's root to the working directory; outside a repository, only the latter."""
    path = Path(tree.realpath(cwd))
    chain = [path, *path.parents]
    root = next((folder for folder in chain if tree.lexists(folder / ".git")), path)
    return [str(folder) for folder in reversed(chain[: chain.index(root) + 1])]


class MemoryLoader:
    """Collects the text of files and of their imports."""

    def __init__(
        self,
        denies: Callable[[str], bool],
        excludes: Callable[[str], bool] | None = None,
        tree: FileTree = HOST_TREE,
    ) -> None:
        self.tree = tree
        self.denies = denies
        self.excludes = excludes
        self._seen: set[tuple[int, int]] = set()
        self._parts: list[str] = []
        self._files: list[str] = []
        self._imports: list[tuple[str, str]] = []
        self._problems: list[SettingsProblem] = []
        self._left_bytes = MOST_BYTES

    def add_file(
        self, path: Path, beneath: tuple[str, ...] | None, imports: tuple[str, ...], home: Path, depth: int = 0
    ) -> bool:
        """Add a file if it exists, then its imports, which must be inside the folders `imports`.

        Returns whether it was added.
        """
        if self.excludes is not None and self.excludes(str(path)):
            return False
        try:
            text = self._read(path, beneath)
        except safe_read.MissingFile:
            return False
        except safe_read.UnreadableFile as exc:
            self._problems.append(SettingsProblem(path=str(path), text=f"{exc}; not loaded as a memory file"))
            return False
        if text is None:
            return False
        self._files.append(str(path))
        self._parts.append(f"{heading_for(str(path))}\n\n{text.strip()}")
        if depth < DEEPEST_IMPORT:
            for target in find_imports(text):
                imported = resolve_import(target, path.parent, home)
                if self.add_file(imported, imports, imports, home, depth + 1):
                    self._imports.append((str(imported), str(path)))
        return True

    def add_text(self, text: str) -> None:
        self._parts.append(text)

    def _read(self, path: Path, beneath: tuple[str, ...] | None) -> str | None:
        """Return the text, or None if it is empty or already loaded. Raises UnreadableFile."""
        found = self.tree.read_file(path, beneath, min(MOST_FILE_BYTES, self._left_bytes))
        if self.denies(str(path)) or self.denies(found.real):
            raise safe_read.UnreadableFile("is denied by a rule")
        if holds_keys(str(path)) or holds_keys(found.real):
            raise safe_read.UnreadableFile("may contain keys or passwords")
        if found.identity in self._seen:
            return None
        self._seen.add(found.identity)
        self._left_bytes -= len(found.data)
        text = found.text()
        if "\0" in text:
            raise safe_read.UnreadableFile("contains a NUL character, so it is not text")
        return text if text.strip() else None

    def result(self) -> MemoryText:
        inner = "\n\n".join(self._parts)
        text = f"{HEADING}\n\n{inner}" if inner else ""
        return MemoryText(
            text=text,
            nested=inner,
            files=tuple(self._files),
            imports=tuple(self._imports),
            problems=tuple(self._problems),
        )


def heading_for(path: str) -> str:
    """Return the line before the text of a file."""
    return f"Contents of {path}:"


def find_imports(text: str) -> Iterator[str]:
    """Yield the paths after `@`, except in code."""
    fence = ""
    for line in text.split("\n"):
        mark = re.match(FENCE, line)
        if mark and (not fence or (mark[1][0] == fence[0] and len(mark[1]) >= len(fence))):
            fence = "" if fence else mark[1]
        elif not fence:
            for found in re.finditer(IMPORT, re.sub(CODE_SPAN, lambda span: " " * len(span[0]), line)):
                yield found[1].replace("\\ ", " ").rstrip(".,;:!?)")


def resolve_import(target: str, folder: Path, home: Path) -> Path:
    """Return the path of an import: relative to the home folder (`~/`) or to the importing file."""
    if target.startswith("~/"):
        return home / target[2:]
    return Path(os.path.normpath(folder / target))
