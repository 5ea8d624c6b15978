"""The closed list of commands that change files in a way that their arguments show (CVE-2026-25723).

Each row says which flags are allowed and which operands are read and written. For a command outside the list, an
unknown flag, or a `sed` script that does more than edit lines, the result is None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from parley.permissions.shell.arguments import ParsedArguments, Program, parse_arguments
from parley.protocol.base import Struct


class FileOperands(Struct, frozen=True):
    """Files as written in the command."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    moves: tuple[tuple[str, str], ...] = ()
    """Files that get a new name: the old name and the new one."""
    copies_folders: bool = False


EditParser = Callable[[Sequence[str]], FileOperands | None]

MKDIR = Program(short="pvm:", long="parents verbose mode=", min_operands=1)
TOUCH = Program(short="acmd:t:r:", long="no-create date= reference= time=", min_operands=1)
RM = Program(short="rRfdvI", long="recursive force dir verbose preserve-root one-file-system", min_operands=1)
RMDIR = Program(short="v", long="verbose ignore-fail-on-non-empty", min_operands=1)
MOVE = Program(
    short="fnuvTt:", long="force no-clobber update? verbose no-target-directory target-directory=", min_operands=1
)
COPY = Program(
    short="rRafnpuvdPTt:",
    long="recursive archive force no-clobber preserve? update? verbose no-dereference no-target-directory "
    "target-directory= reflink? sparse=",
    min_operands=1,
)
RECURSIVE = ("r", "R", "a", "recursive", "archive")
SED = Program(short="Erni::e:zs", long="regexp-extended quiet silent in-place? expression= null-data separate")

# One command that edits lines: delete, print or substitute, at line numbers or a pattern. No `w`, `e` or `r`.
ADDRESS = r"(?:\d+|\$|/(?:[^/\\\n]|\\[^\n])*/I?)"
HALF = r"(?:(?!(?P=cut))[^\\\n]|\\[^\n])*(?P=cut)"
SUBSTITUTE = rf"s(?P<cut>[/|#,:@!]){HALF}{HALF}[gIip0-9]*"
SCRIPT = re.compile(rf"(?:{ADDRESS}(?:,{ADDRESS})?)?!?(?:[dp]|{SUBSTITUTE})")


def _parse_written(program: Program) -> EditParser:
    def edit(words: Sequence[str]) -> FileOperands | None:
        found = parse_arguments(program, words)
        return None if found is None else FileOperands(writes=_operands(words, found))

    return edit


def _parse_touch(words: Sequence[str]) -> FileOperands | None:
    found = parse_arguments(TOUCH, words)
    if found is None:
        return None
    return FileOperands(_values(found, "r", "reference"), _operands(words, found))


def _parse_move(program: Program, keeps_source: bool) -> EditParser:
    def edit(words: Sequence[str]) -> FileOperands | None:
        found = parse_arguments(program, words)
        if found is None:
            return None
        operands, into = _operands(words, found), _values(found, "t", "target-directory")
        if not into and len(operands) < 2:
            return None
        sources, destination = (operands, into[-1]) if into else (operands[:-1], operands[-1])
        if found.has_flag("T", "no-target-directory") or any(
            _last_part(source) in ("", ".", "..") for source in sources
        ):
            return None  # `cp -r template/. .` copies every name of a folder, also .git and .vscode
        destinations = (destination, *(f"{destination}/{_last_part(source)}" for source in sources))
        # The destination may be a folder that exists already.
        moves = tuple(
            (source, path) for source in sources for path in (destination, f"{destination}/{_last_part(source)}")
        )
        writes = destinations if keeps_source else (*sources, *destinations)
        return FileOperands(sources, writes, moves, keeps_source and found.has_flag(*RECURSIVE))

    return edit


def _parse_sed(words: Sequence[str]) -> FileOperands | None:
    """`sed -i` with scripts that only edit lines; with a suffix, a backup of each file is written."""
    found = parse_arguments(SED, words)
    if found is None or not found.has_flag("i", "in-place"):
        return None
    scripts, operands = _values(found, "e", "expression"), _operands(words, found)
    if not scripts:
        scripts, operands = operands[:1], operands[1:]
    if not scripts or not operands or not all(SCRIPT.fullmatch(script) for script in scripts):
        return None
    suffixes = [suffix for suffix in _values(found, "i", "in-place") if suffix]
    if any("/" in suffix or "*" in suffix for suffix in suffixes):
        return None
    return FileOperands(writes=(*operands, *(operand + suffix for suffix in suffixes for operand in operands)))


def _last_part(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _operands(words: Sequence[str], found: ParsedArguments) -> tuple[str, ...]:
    return tuple(words[index] for index in found.operands)


def _values(found: ParsedArguments, *names: str) -> tuple[str, ...]:
    return tuple(value for flag, value in found.flags if flag in names)


EDITS: dict[str, EditParser] = {
    "mkdir": _parse_written(MKDIR),
    "touch": _parse_touch,
    "rm": _parse_written(RM),
    "rmdir": _parse_written(RMDIR),
    "mv": _parse_move(MOVE, keeps_source=False),
    "cp": _parse_move(COPY, keeps_source=True),
    "sed": _parse_sed,
}
