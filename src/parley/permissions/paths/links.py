"""What a reader meets in folders: the links there, where it follows them, and keys."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from parley.permissions.base import Filesystem
from parley.permissions.memo import memoize
from parley.permissions.paths.filesystem import MAX_ENTRIES, watch_folder
from parley.permissions.paths.protected import KEYS
from parley.permissions.rules import RuleSet
from parley.permissions.shell import CommandLine, Step
from parley.permissions.shell.denied.mentions import reads_whole_folders
from parley.permissions.shell.wrappers import unwrap
from parley.protocol.base import Struct

HIDDEN = re.compile(r"--hidden|-[A-Za-z.]*[u.][A-Za-z.]*")
"""The flags with which `rg` looks at names with a dot in front."""


class FoundLinks(Struct, frozen=True):
    links: tuple[str, ...] = ()
    unknown_reason: str = ""
    """Why there may be others."""


NO_LINKS = FoundLinks()


def find_links(followed: Collection[tuple[str, bool]], rules: RuleSet, fs: Filesystem) -> FoundLinks:
    """The links in some folders, at any depth where that is said. One that leads out is not entered."""
    if not followed:
        return NO_LINKS
    links: dict[str, None] = {}
    waiting, known = list(followed), set[tuple[str | None, bool]]()
    while waiting:
        folder, deep = waiting.pop()
        here = (fs.resolve(folder).real, deep)
        if here in known:
            continue
        known.add(here)
        names = fs.entries(folder, MAX_ENTRIES)
        if names is None:
            return FoundLinks(
                tuple(links), f"There are too many files below {make_printable(folder)} to see where each link leads"
            )
        for name, kind in names.items():
            path = f"{folder.rstrip('/')}/{name}"
            if kind == "link":
                links[path] = None
            if deep and (kind == "folder" or (kind == "link" and rules.is_readable(fs.resolve(path), fs))):
                waiting.append((path, deep))
    return FoundLinks(tuple(links))


def find_key_files(line: CommandLine, steps: Sequence[Step], fs: Filesystem) -> list[str]:
    """The files with keys right in the folders that a line searches."""
    found: list[str] = []
    for command, step in zip(line.commands, steps, strict=True):
        if not step.names:
            continue
        inner = unwrap(command)
        argv = inner.argv if inner else command.argv
        if reads_whole_folders(argv) and (argv[0] != "rg" or any(map(HIDDEN.fullmatch, argv[1:]))):
            for folder in step.names:
                found += keys_in(folder.rstrip("/"), fs)
    return found


def keys_in(folder: str, fs: Filesystem) -> list[str]:
    def work(fs: Filesystem) -> list[str]:
        watch_folder(fs, folder or "/")
        return [path for name in KEYS if fs.exists(path := f"{folder}/{name}")]

    return memoize(("keys", folder), fs, work)


def make_printable(path: str) -> str:
    """A path that every reader of our lines takes: a name may hold bytes that are no character."""
    return path.encode(errors="surrogateescape").decode(errors="replace")
