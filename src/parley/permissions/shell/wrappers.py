"""Programs that run the command in their own words, and leave everything else alone.

Only these are looked through when something is to be allowed, and only with flags we know. `env`,
`sudo`, `watch`, `setsid`, `ionice` and `flock` are not among them: they change what the command may do
or how often it does it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from parley.permissions.shell.arguments import Program, reading
from parley.permissions.shell.ast import Simple, names
from parley.permissions.shell.strict_parser import ASSIGNMENT, COMMAND, RESERVED
from parley.protocol.base import Struct

DURATION = re.compile(r"\d+(?:\.\d+)?[smhd]?")
MOST_WRAPPERS = 16
WRAPPERS = names("timeout time nice nohup stdbuf command builtin noglob xargs")

FLAGS = {
    "timeout": Program(short="k:s:v", long="kill-after= signal= foreground preserve-status verbose"),
    "time": Program(short="p"),
    "nice": Program(short="n:", long="adjustment=", numbers=True),
    "stdbuf": Program(short="i:o:e:", long="input= output= error="),
}
NONE = Program()


class Inner(Struct, frozen=True):
    """What a command comes down to without its wrappers."""

    argv: tuple[str, ...]
    words: tuple[str, ...]
    globs: tuple[int, ...]
    open: bool = False
    """More words will be put behind these: they come from a pipe."""
    wrappers: tuple[str, ...] = ()


@lru_cache(maxsize=128)
def unwrapped(command: Simple) -> Inner | None:
    """The command inside; None if the words of a wrapper cannot be told apart."""
    inner = Inner(command.argv, command.words, command.globs)
    while inner.argv and inner.argv[0] in WRAPPERS:
        begin = _begin(inner.argv) if len(inner.wrappers) < MOST_WRAPPERS else None
        if begin is None or begin >= len(inner.argv) or any(place <= begin for place in inner.globs):
            return None
        word = inner.argv[begin]
        if word != inner.words[begin] or not COMMAND.fullmatch(word) or word in RESERVED or ASSIGNMENT.match(word):
            return None
        inner = Inner(
            inner.argv[begin:],
            inner.words[begin:],
            tuple(place - begin for place in inner.globs),
            inner.open or inner.argv[0] == "xargs",
            (*inner.wrappers, inner.argv[0]),
        )
    return inner if inner.argv else None


def _begin(argv: tuple[str, ...]) -> int | None:
    """Where the command begins in the words of its wrapper."""
    program = FLAGS.get(argv[0], NONE)
    place = 1
    while place < len(argv) and argv[place].startswith("-"):
        if argv[place] == "-":
            return None
        width = 2 if _takes_next(program, argv[place]) else 1
        if reading(program, argv[place : place + width], 0) is None:
            return None
        place += width
    if argv[0] != "timeout":
        return place
    return place + 1 if place < len(argv) and DURATION.fullmatch(argv[place]) else None


def _takes_next(program: Program, word: str) -> bool:
    """Whether the flag cannot be read without the word behind it."""
    return reading(program, (word,), 0) is None
