"""Open a conversation at the terminal: with a session of this machine, or with one of a gateway."""

from __future__ import annotations

import os
import termios
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic

from parley.cli.process_secrets import erase
from parley.cli.stdio import warn, write
from parley.errors import InvalidArguments, UsageError
from parley.protocol.options import CliOptions
from parley.version import how_to_install

INPUT_MODES, LOCAL_MODES = 0, 3
"""Where these modes are in the attributes of a terminal."""


def start_conversation(options: CliOptions) -> int:
    """Hold a conversation in the session that the options name; returns the exit code. Raises UsageError."""
    erase()
    is_plain = wants_lines(options)
    with unread_keys(is_plain):
        from parley.terminal.application import run_conversation
        from parley.terminal.session import choose_target

        return run_conversation(choose_target(options, find_cwd()), is_plain=is_plain)


def attach_to_gateway(options: CliOptions, url: str, token: str) -> int:
    """Hold a conversation in the session `http://HOST:PORT/sessions/ID`. Raises UsageError."""
    server, separator, session_id = url.rpartition("/sessions/")
    if not separator or not session_id:
        raise InvalidArguments(f"the URL of a session is http://HOST:PORT/sessions/ID, not {url!r}")
    is_plain = wants_lines(options)
    with unread_keys(is_plain):
        from parley.terminal.application import run_conversation
        from parley.terminal.session import SessionTarget

        target = SessionTarget(options, find_cwd(), session_id, is_resumed=True, server=server, token=token)
        return run_conversation(target, is_plain=is_plain)


def follow(lines: Iterable[tuple[int, bytes]]) -> int:
    """Show a session that another process holds, without control over it; returns the exit code."""
    from parley.protocol.base import decode
    from parley.terminal.interfaces.screen import terminal_size
    from parley.terminal.rendering.style import Styles
    from parley.terminal.rendering.transcript import TerminalTranscript

    def print_lines(lines: list[str]) -> None:
        write("".join(f"{line}\n" for line in lines).encode(errors="replace"), raw=True)

    styles = Styles.from_environment(os.environ)
    transcript = TerminalTranscript(print_lines, styles, lambda: terminal_size()[0], monotonic)
    transcript.calls.shows_time = False
    transcript.note("Another process holds this session: you can watch it. Ctrl-C ends this.")
    try:
        for _, line in lines:
            transcript.show(decode(line))
    except KeyboardInterrupt:
        return 130
    return 0


def wants_lines(options: CliOptions) -> bool:
    """Whether the conversation is printed line by line: the terminal can do no more, or an extra is missing."""
    if options.screen_reader or os.environ.get("TERM", "") in ("", "dumb"):
        return True
    from importlib.util import find_spec

    if find_spec("prompt_toolkit") is not None:
        return False
    warn(f"For a screen with colours, completion and a status line, install an extra: {how_to_install('tui')}")
    return True


@contextmanager
def unread_keys(is_plain: bool) -> Iterator[None]:
    """Keep keys that are pressed before the screen is there as they are, and restore the terminal in the end."""
    if is_plain:
        yield  # the terminal edits the lines
        return
    saved = termios.tcgetattr(0)
    changed = termios.tcgetattr(0)
    changed[INPUT_MODES] &= ~termios.ICRNL
    changed[LOCAL_MODES] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(0, termios.TCSANOW, changed)
    try:
        yield
    finally:
        with suppress(termios.error):  # it may be closed
            termios.tcsetattr(0, termios.TCSANOW, saved)


def find_cwd() -> str:
    """Raises UsageError."""
    try:
        return os.getcwd()
    except OSError:
        raise UsageError("the working directory no longer exists") from None
