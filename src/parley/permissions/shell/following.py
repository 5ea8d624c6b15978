"""Readers that follow the links they meet in a folder, and how deep they go.

A reader opens what its operands lead to; that is judged like any file. With these flags, or when it compares
folders, it also opens what links below them lead to.
"""

from __future__ import annotations

from collections.abc import Sequence

from parley.permissions.shell.programs import files, reading
from parley.permissions.shell.readonly import program_name
from parley.permissions.shell.simple import Simple
from parley.permissions.shell.tables import READERS
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


def _starts(argv: Sequence[str]) -> Sequence[str]:
    """Whatever is not a flag may be where `find` starts."""
    return [word for word in argv[1:] if word[:1] not in ("-", "(", ")", "!", ",")] or ["."]
