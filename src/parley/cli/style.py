"""Colours and questions of subcommands. Piped output has no escape sequences.

    styles = choose_style()
    styles.bold("Options:"), styles.bad("error")

Colours are on if stdout is a terminal that can show them. `NO_COLOR` turns them off, `FORCE_COLOR` turns them on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from parley.cli.stdio import reveal
from parley.terminal.rendering.style import Styles, Theme

ON, PLAIN = Styles(theme=Theme("subcommands", bad="31")), Styles(attributes=False)


def choose_style(environment: Mapping[str, str] = os.environ, descriptor: int = 1) -> Styles:
    """The style for a stream of this process."""
    if environment.get("NO_COLOR"):
        return PLAIN
    if environment.get("FORCE_COLOR", "0") not in ("", "0"):
        return ON
    return ON if os.isatty(descriptor) and environment.get("TERM", "dumb") != "dumb" else PLAIN


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
