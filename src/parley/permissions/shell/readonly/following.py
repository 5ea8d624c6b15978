"""Readers that open more files than they name: through symlinks in folders, or from a list in a file.

The operands of a reader are checked like any file. With the flags of FOLLOWING, or when it compares folders, it also
opens the targets of symlinks below them. `md5sum -c` opens the files that a list names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from parley.permissions.base import word_set
from parley.permissions.shell.arguments import parse_arguments, read_operands
from parley.permissions.shell.readonly.check import program_name
from parley.permissions.shell.readonly.tables import READERS
from parley.permissions.shell.strict_parser import SimpleCommand
from parley.permissions.shell.wrappers import unwrap

# The flags with which symlinks are followed, and those with which subfolders are entered too; `*` means always.
FOLLOWING = {
    **dict.fromkeys(("grep", "egrep", "fgrep"), ("R dereference-recursive", "*")),
    "rg": ("L follow", "*"),
    "ls": ("L dereference", "R recursive"),
    "du": ("L dereference", "*"),
    "tree": ("l", "*"),
    "diff": ("*", "r recursive"),
}
CHECKERS = word_set("cksum md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum shasum")
CHECKSUM_LINES = (
    re.compile(r"\s*\S+[ \t](.+)"),
    re.compile(r"\s*\S+[ \t][ *?^U](.+)"),
    re.compile(r".*?\((.+)\)[ \t]*=.*"),
)
"""The forms of a line in a list of checksums: the name is at the end, after a mark, or in parentheses."""
FIND_FLAGS = frozenset({"-L", "-follow"})


def find_followed_folders(command: SimpleCommand) -> tuple[tuple[str, bool], ...]:
    """The operands below which a reader follows symlinks, and whether at any depth."""
    inner = unwrap(command)
    argv = inner.argv if inner else command.argv
    name = program_name(argv[0]) if argv else ""
    if name == "find":
        return tuple((start, True) for start in _find_start_folders(argv)) if FIND_FLAGS.intersection(argv) else ()
    if name not in FOLLOWING:
        return ()
    follows, deep = FOLLOWING[name]
    if follows != "*" and not any(flag in word for flag in follows.split() for word in argv):
        return ()
    found = parse_arguments(READERS[name], argv)
    if found is None or found.has_flag("no-dereference") or (follows != "*" and not found.has_flag(*follows.split())):
        return ()
    is_deep = deep == "*" or found.has_flag(*deep.split())
    return tuple((file, is_deep) for file in read_operands(READERS[name], argv, found) or (".",))


def find_checksum_lists(command: SimpleCommand) -> tuple[str, ...]:
    """The files that name other files to read; `-` is the input."""
    inner = unwrap(command)
    argv = inner.argv if inner else command.argv
    name = program_name(argv[0]) if argv else ""
    found = parse_arguments(READERS[name], argv) if name in CHECKERS else None
    if found is None or not found.has_flag("c", "check"):
        return ()
    return tuple(argv[index] for index in found.operands) or ("-",)


def parse_checksum_list(data: bytes) -> list[str] | None:
    """The names in a list of checksums; None if one is escaped."""
    lines = [line.rstrip("\r") for line in data.decode(errors="surrogateescape").split("\n")]
    if any(line.lstrip().startswith("\\") for line in lines):
        return None
    return [found[1] for line in lines for form in CHECKSUM_LINES if (found := form.fullmatch(line))]


def _find_start_folders(argv: Sequence[str]) -> Sequence[str]:
    """The folders at which `find` may start: every argument that is not a flag."""
    return [word for word in argv[1:] if word[:1] not in ("-", "(", ")", "!", ",")] or ["."]
