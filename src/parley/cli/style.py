"""Colours for people at a terminal. Piped output has no escape sequences.

    style = choose_style()
    style.bold("Options:"), style.red("error")

Colours are on if stdout is a terminal that can show them. `NO_COLOR` turns them off, `FORCE_COLOR` turns them on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from parley.cli.stdio import reveal
from parley.protocol.base import Struct


class Style(Struct, frozen=True):
    """Wraps text in escape sequences, or leaves it as it is."""

    is_on: bool

    def bold(self, text: str) -> str:
        return self._wrap("1", text)

    def dim(self, text: str) -> str:
        return self._wrap("2", text)

    def red(self, text: str) -> str:
        return self._wrap("31", text)

    def green(self, text: str) -> str:
        return self._wrap("32", text)

    def yellow(self, text: str) -> str:
        return self._wrap("33", text)

    def _wrap(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.is_on and text else text


PLAIN = Style(False)


def choose_style(environment: Mapping[str, str] = os.environ, descriptor: int = 1) -> Style:
    """The style for a stream of this process."""
    if environment.get("NO_COLOR"):
        return PLAIN
    if environment.get("FORCE_COLOR", "0") not in ("", "0"):
        return Style(True)
    return Style(os.isatty(descriptor) and environment.get("TERM", "dumb") != "dumb")


def terminal_width(most: int, descriptor: int = 1) -> int:
    """The columns of the terminal, at most this many; this many if the stream is not a terminal."""
    if not os.isatty(descriptor):
        return most
    import shutil

    return min(most, shutil.get_terminal_size().columns)


def can_ask() -> bool:
    """Whether a person can be asked: stdin and stderr are terminals."""
    return os.isatty(0) and os.isatty(2)


def confirm(question: str) -> bool:
    """Ask a person at the terminal; only `y` or `yes` confirms."""
    sys.stderr.write(f"{reveal(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
