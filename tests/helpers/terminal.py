"""A terminal with a person at it: the executable on a pseudo-terminal, and an emulator that reads what it draws.

    with TerminalHarness(tmp_path, "say Hi") as terminal:
        terminal.wait_for("Hi")
        assert terminal.wait() == 0

`TmuxHarness` does the same in a real tmux.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import shlex
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pyte

from tests.helpers.environment import base_environment
from tests.helpers.forked import PARLEY
from tests.helpers.patience import PATIENCE_SECONDS

START = 'exec "$@" <"$TTY" >"$TTY" 2>&1'
"""The first terminal that the leader of a session opens becomes its own."""


def make_environment(folder: Path, **more: str) -> dict[str, str]:
    """A machine without keys and settings."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    return {"HOME": str(home), **base_environment(), "TERM": "xterm-256color", **more}


class Emulator:
    """What a terminal shows, lines that have scrolled away included."""

    def __init__(self, columns: int, rows: int) -> None:
        self._screen = pyte.HistoryScreen(columns, rows, history=10_000)
        self._stream = pyte.ByteStream(self._screen)

    def feed(self, data: bytes) -> None:
        self._stream.feed(data)

    def resize(self, columns: int, rows: int) -> None:
        self._screen.resize(rows, columns)

    @property
    def lines(self) -> list[str]:
        """All lines without blanks at their ends, and without empty lines at the end."""
        columns = self._screen.columns
        above = ["".join(line[column].data for column in range(columns)) for line in self._screen.history.top]
        lines = [line.rstrip() for line in [*above, *self._screen.display]]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def text(self) -> str:
        return "\n".join([*self.lines, ""])

    @property
    def columns(self) -> int:
        return int(self._screen.columns)

    @property
    def rows(self) -> int:
        return int(self._screen.lines)

    @property
    def cursor(self) -> tuple[int, int]:
        return self._screen.cursor.y, self._screen.cursor.x


class TerminalHarness:
    """The executable at a terminal. `more` are variables; `stdin` is piped into it instead of keys."""

    program: tuple[str, ...] = (PARLEY,)

    def __init__(
        self, folder: Path, *argv: str, columns: int = 80, rows: int = 24, stdin: str | None = None, **more: str
    ) -> None:
        self.folder = folder
        self.emulator = Emulator(columns, rows)
        self.written = b""
        """Every byte that was written to the terminal."""
        self._size = (columns, rows)
        self._is_closed = False
        self._stdin = stdin
        self._argv = argv
        self._environment = make_environment(folder, **more)

    def __enter__(self) -> Self:
        self._master, slave = pty.openpty()
        self._slave = slave
        self.resize(*self._size)
        self.modes = termios.tcgetattr(slave)
        """How the shell left the terminal."""
        start = START if self._stdin is None else START.replace('<"$TTY"', "<piped")
        if self._stdin is not None:
            (self.folder / "piped").write_text(self._stdin)
        self.process = subprocess.Popen(
            ["sh", "-c", start, "sh", *self.program, *self._argv],
            cwd=self.folder,
            env={**self._environment, "TTY": os.ttyname(slave)},
            start_new_session=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.hang_up()

    def hang_up(self) -> None:
        """Close the terminal."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self._slave)
            os.close(self._master)

    @property
    def current_modes(self) -> list[Any]:
        return termios.tcgetattr(self._slave)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.emulator.resize(columns, rows)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, text: str) -> None:
        """Wait until the terminal shows a text."""
        self.wait_until(lambda: text in self.emulator.text, repr(text))

    def wait_for_cursor(self, column: int) -> None:
        """Wait until the cursor is in a column."""
        self.wait_until(lambda: self.emulator.cursor[1] == column, f"the cursor in column {column}")

    def wait_until(self, condition: Callable[[], bool], wanted: str = "the condition") -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            has_ended = self.process.poll() is not None
            if time.monotonic() > deadline or (not self._read(seconds=0.05) and has_ended):
                raise AssertionError(f"{wanted} is not on the terminal:\n{self.emulator.text}")

    def wait_exit(self) -> int:
        """Wait for the process to exit, without reading what it writes; returns its exit code."""
        return self.process.wait(PATIENCE_SECONDS)

    def wait(self) -> int:
        """Wait for the process to exit; returns its exit code."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read(seconds=0.1)
        while self._read(seconds=0):
            pass
        code = self.process.poll()
        assert code is not None, f"it has not exited:\n{self.emulator.text}"
        return code

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def _read(self, seconds: float = PATIENCE_SECONDS) -> bool:
        """Read what is written next; False if nothing comes."""
        if not select.select([self._master], [], [], min(seconds, 0.2) if self.process.poll() is not None else seconds)[
            0
        ]:
            return False
        data = os.read(self._master, 1 << 16)
        self.written += data
        self.emulator.feed(data)
        return True


class TmuxHarness:
    """A shell in a window of tmux."""

    def __init__(self, folder: Path, columns: int = 80, rows: int = 24) -> None:
        self._socket = str(folder / "tmux")
        self._folder = folder
        self._size = ("-x", str(columns), "-y", str(rows))

    def __enter__(self) -> Self:
        environment = make_environment(self._folder, TERM="screen-256color")
        self._run("-f", os.devnull, "new-session", "-d", *self._size, "sh", env=environment, cwd=self._folder)
        self._run("set-option", "-g", "history-limit", "5000")
        self._run("set-option", "-g", "window-size", "manual")
        self.type("PS1='rea''dy> '")  # the echo of this line is not the prompt
        self.press("Enter")
        self.wait_for("ready>")
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self._run("kill-server")

    def _run(self, *argv: str, **more: Any) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, *argv],
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_SECONDS,
            **more,
        )
        return str(done.stdout)

    def start(self, *argv: str) -> None:
        """Type a command of the executable."""
        self.type(shlex.join([PARLEY, *argv]) + "; echo exit=$?")
        self.press("Enter")

    def type(self, text: str) -> None:
        self._run("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def resize(self, columns: int, rows: int) -> None:
        self._run("resize-window", "-x", str(columns), "-y", str(rows))

    @property
    def text(self) -> str:
        """What the window shows and has shown; lines that tmux wrapped are joined."""
        return self._run("capture-pane", "-p", "-J", "-S", "-")

    def wait_for(self, text: str, after: str = "") -> str:
        """Wait until the window shows a text, after the last of another one; returns everything that it shows."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while text not in (shown := self.text).rpartition(after or "\0")[2]:
            if time.monotonic() > deadline:
                raise AssertionError(f"{text!r} is not on the screen:\n{shown}")
            time.sleep(0.02)  # tmux has no way to wait for a text
        return shown
