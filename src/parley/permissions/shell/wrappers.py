"""Programs that run the command in their arguments and change nothing else.

Only these are looked through to allow a command, and only with known flags. `env`, `sudo`, `watch`, `setsid`, `ionice`
and `flock` are not among them: they change what the command may do, or how often it runs.
"""

from __future__ import annotations

import re
from functools import lru_cache

from parley.permissions.base import word_set
from parley.permissions.shell.arguments import Program, parse_arguments
from parley.permissions.shell.strict_parser import ASSIGNMENT, COMMAND, RESERVED, SimpleCommand
from parley.protocol.base import Struct

DURATION = re.compile(r"\d+(?:\.\d+)?[smhd]?")
MAX_WRAPPERS = 16
WRAPPERS = word_set("timeout time nice nohup stdbuf command builtin noglob xargs")

FLAGS = {
    "timeout": Program(short="k:s:v", long="kill-after= signal= foreground preserve-status verbose"),
    "time": Program(short="p"),
    "nice": Program(short="n:", long="adjustment=", number_flags=True),
    "stdbuf": Program(short="i:o:e:", long="input= output= error="),
}
NO_FLAGS = Program()


class UnwrappedCommand(Struct, frozen=True):
    """A command without its wrappers."""

    argv: tuple[str, ...]
    words: tuple[str, ...]
    globs: tuple[int, ...]
    is_open_ended: bool = False
    """More words are appended at run time, from a pipe (xargs)."""
    wrappers: tuple[str, ...] = ()


@lru_cache(maxsize=128)
def unwrap(command: SimpleCommand) -> UnwrappedCommand | None:
    """The command inside; None if the arguments of a wrapper are not understood."""
    inner = UnwrappedCommand(command.argv, command.words, command.globs)
    while inner.argv and inner.argv[0] in WRAPPERS:
        begin = _find_begin(inner.argv) if len(inner.wrappers) < MAX_WRAPPERS else None
        if begin is None or begin >= len(inner.argv) or any(index <= begin for index in inner.globs):
            return None
        word = inner.argv[begin]
        if word != inner.words[begin] or not COMMAND.fullmatch(word) or word in RESERVED or ASSIGNMENT.match(word):
            return None
        inner = UnwrappedCommand(
            inner.argv[begin:],
            inner.words[begin:],
            tuple(index - begin for index in inner.globs),
            inner.is_open_ended or inner.argv[0] == "xargs",
            (*inner.wrappers, inner.argv[0]),
        )
    return inner if inner.argv else None


def inner_argv(command: SimpleCommand) -> tuple[str, ...]:
    """The words of the command inside; all words if the arguments of a wrapper are not understood."""
    inner = unwrap(command)
    return inner.argv if inner else command.argv


def _find_begin(argv: tuple[str, ...]) -> int | None:
    """The position of the command in the arguments of its wrapper."""
    program = FLAGS.get(argv[0], NO_FLAGS)
    index = 1
    while index < len(argv) and argv[index].startswith("-"):
        if argv[index] == "-":
            return None
        width = 2 if _takes_next(program, argv[index]) else 1
        if parse_arguments(program, argv[index : index + width], 0) is None:
            return None
        index += width
    if argv[0] != "timeout":
        return index
    return index + 1 if index < len(argv) and DURATION.fullmatch(argv[index]) else None


def _takes_next(program: Program, word: str) -> bool:
    """Whether the flag needs the next word as its value."""
    return parse_arguments(program, (word,), 0) is None
