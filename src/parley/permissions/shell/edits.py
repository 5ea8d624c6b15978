"""The closed list of commands that change files in a way their words tell (CVE-2026-25723).

Each row says which flags keep it so and which operands are read and written. A command outside the
list, an unknown flag or a `sed` script that does more than edit lines: the answer is None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from parley.permissions.shell.arguments import Program, Reading, reading
from parley.protocol.base import Struct


class Touched(Struct, frozen=True):
    """Files as the command names them."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    moves: tuple[tuple[str, str], ...] = ()
    """What is found under a new name from then on: the old, and the new."""
    copies_folders: bool = False


Edit = Callable[[Sequence[str]], Touched | None]

MKDIR = Program(short="pvm:", long="parents verbose mode=", least=1)
TOUCH = Program(short="acmd:t:r:", long="no-create date= reference= time=", least=1)
RM = Program(short="rRfdvI", long="recursive force dir verbose preserve-root one-file-system", least=1)
RMDIR = Program(short="v", long="verbose ignore-fail-on-non-empty", least=1)
MOVE = Program(short="fnuvTt:", long="force no-clobber update? verbose no-target-directory target-directory=", least=1)
COPY = Program(
    short="rRafnpuvdPTt:",
    long="recursive archive force no-clobber preserve? update? verbose no-dereference no-target-directory "
    "target-directory= reflink? sparse=",
    least=1,
)
RECURSIVE = ("r", "R", "a", "recursive", "archive")
SED = Program(short="Erni::e:zs", long="regexp-extended quiet silent in-place? expression= null-data separate")

# One edit of lines: delete, print or substitute, at line numbers or a pattern. No `w`, no `e`, no `r`.
ADDRESS = r"(?:\d+|\$|/(?:[^/\\\n]|\\[^\n])*/I?)"
HALF = r"(?:(?!(?P=cut))[^\\\n]|\\[^\n])*(?P=cut)"
SUBSTITUTE = rf"s(?P<cut>[/|#,:@!]){HALF}{HALF}[gIip0-9]*"
SCRIPT = re.compile(rf"(?:{ADDRESS}(?:,{ADDRESS})?)?!?(?:[dp]|{SUBSTITUTE})")


def _all_written(program: Program) -> Edit:
    def edit(words: Sequence[str]) -> Touched | None:
        found = reading(program, words)
        return None if found is None else Touched(writes=_operands(words, found))

    return edit


def _touch(words: Sequence[str]) -> Touched | None:
    found = reading(TOUCH, words)
    if found is None:
        return None
    return Touched(_values(found, "r", "reference"), _operands(words, found))


def _moves(program: Program, keeps_source: bool) -> Edit:
    def edit(words: Sequence[str]) -> Touched | None:
        found = reading(program, words)
        if found is None:
            return None
        operands, into = _operands(words, found), _values(found, "t", "target-directory")
        if not into and len(operands) < 2:
            return None
        sources, goal = (operands, into[-1]) if into else (operands[:-1], operands[-1])
        if found.has("T", "no-target-directory") or any(_last(source) in ("", ".", "..") for source in sources):
            return None  # `cp -r template/. .` brings every name of a folder along, .git and .vscode like any other.
        goals = (goal, *(f"{goal}/{_last(source)}" for source in sources))
        # Whether the goal is a folder already, only the file system knows.
        moves = tuple((source, place) for source in sources for place in (goal, f"{goal}/{_last(source)}"))
        writes = goals if keeps_source else (*sources, *goals)
        return Touched(sources, writes, moves, keeps_source and found.has(*RECURSIVE))

    return edit


def _sed(words: Sequence[str]) -> Touched | None:
    """`sed -i` with scripts that only edit lines; a suffix makes a second file of each."""
    found = reading(SED, words)
    if found is None or not found.has("i", "in-place"):
        return None
    scripts, operands = _values(found, "e", "expression"), _operands(words, found)
    if not scripts:
        scripts, operands = operands[:1], operands[1:]
    if not scripts or not operands or not all(SCRIPT.fullmatch(script) for script in scripts):
        return None
    suffixes = [suffix for suffix in _values(found, "i", "in-place") if suffix]
    if any("/" in suffix or "*" in suffix for suffix in suffixes):
        return None
    return Touched(writes=(*operands, *(operand + suffix for suffix in suffixes for operand in operands)))


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _operands(words: Sequence[str], found: Reading) -> tuple[str, ...]:
    return tuple(words[place] for place in found.operands)


def _values(found: Reading, *names: str) -> tuple[str, ...]:
    return tuple(value for flag, value in found.flags if flag in names)


EDITS: dict[str, Edit] = {
    "mkdir": _all_written(MKDIR),
    "touch": _touch,
    "rm": _all_written(RM),
    "rmdir": _all_written(RMDIR),
    "mv": _moves(MOVE, keeps_source=False),
    "cp": _moves(COPY, keeps_source=True),
    "sed": _sed,
}
