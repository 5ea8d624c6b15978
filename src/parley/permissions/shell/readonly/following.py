"""Readers that open more than they name: what links in a folder lead to, and what is named in a file.

A reader opens what its operands lead to; that is judged like any file. With the flags of `followed`, or when it
compares folders, it also opens what links below them lead to. `md5sum -c` opens the files that a list names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from parley.permissions.shell.arguments import files, reading
from parley.permissions.shell.ast import Simple, names
from parley.permissions.shell.readonly.check import program_name
from parley.permissions.shell.readonly.tables import READERS
from parley.permissions.shell.wrappers import unwrapped

# The flags with which links are followed, and those with which folders in the folder are entered as well.
FOLLOWING = {
    **dict.fromkeys(("grep", "egrep", "fgrep"), ("R dereference-recursive", "*")),
    "rg": ("L follow", "*"),
    "ls": ("L dereference", "R recursive"),
    "du": ("L dereference", "*"),
    "tree": ("l", "*"),
    "diff": ("*", "r recursive"),
}
CHECKERS = names("cksum md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum shasum")
LISTED = (
    re.compile(r"\s*\S+[ \t](.+)"),
    re.compile(r"\s*\S+[ \t][ *?^U](.+)"),
    re.compile(r".*?\((.+)\)[ \t]*=.*"),
)
"""What a line of a list of checksums may be: the name is at its end, after a mark, or in parentheses."""
FIND = frozenset({"-L", "-follow"})


def followed(command: Simple) -> tuple[tuple[str, bool], ...]:
    """The operands below which a reader follows links, and whether at any depth."""
    inner = unwrapped(command)
    argv = inner.argv if inner else command.argv
    name = program_name(argv[0]) if argv else ""
    if name == "find":
        return tuple((start, True) for start in _starts(argv)) if FIND.intersection(argv) else ()
    if name not in FOLLOWING:
        return ()
    follows, deep = FOLLOWING[name]
    if follows != "*" and not any(flag in word for flag in follows.split() for word in argv):
        return ()
    found = reading(READERS[name], argv)
    if found is None or found.has("no-dereference") or (follows != "*" and not found.has(*follows.split())):
        return ()
    is_deep = deep == "*" or found.has(*deep.split())
    return tuple((file, is_deep) for file in files(READERS[name], argv, found) or (".",))


def lists(command: Simple) -> tuple[str, ...]:
    """The files in which a reader finds the names of others; `-` is its input."""
    inner = unwrapped(command)
    argv = inner.argv if inner else command.argv
    name = program_name(argv[0]) if argv else ""
    found = reading(READERS[name], argv) if name in CHECKERS else None
    if found is None or not found.has("c", "check"):
        return ()
    return tuple(argv[place] for place in found.operands) or ("-",)


def listed(data: bytes) -> list[str] | None:
    """The names in a list of checksums; None if one is spelled in a way that is not known."""
    lines = [line.rstrip("\r") for line in data.decode(errors="surrogateescape").split("\n")]
    if any(line.lstrip().startswith("\\") for line in lines):
        return None
    return [found[1] for line in lines for form in LISTED if (found := form.fullmatch(line))]


def _starts(argv: Sequence[str]) -> Sequence[str]:
    """Whatever is not a flag may be where `find` starts."""
    return [word for word in argv[1:] if word[:1] not in ("-", "(", ")", "!", ",")] or ["."]
