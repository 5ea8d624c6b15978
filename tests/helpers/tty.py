"""Programs at a terminal: a pseudo-terminal to talk to, and a window of tmux to look at.

with Terminal(["bash"], environment, folder) as terminal:
    terminal.send("echo hi\\r")
    terminal.read_until("hi")
show_in_tmux("parley --help", environment, folder)      # what a person sees
"""

from __future__ import annotations

import os
import pty
import select
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.helpers.patience import PATIENCE_SECONDS

CHUNK_BYTES = 65_536


class Terminal:
    """A program whose standard streams are a pseudo-terminal."""

    def __init__(self, argv: list[str], environment: dict[str, str], folder: Path) -> None:
        self.output = ""
        self._own, theirs = pty.openpty()
        self._process = subprocess.Popen(
            argv,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env={"TERM": "xterm", **environment},
            start_new_session=True,
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE_SECONDS)
        os.close(self._own)

    def send(self, text: str) -> None:
        os.write(self._own, text.encode())

    def read_until(self, text: str) -> None:
        """Read until the output contains a text."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while text not in self.output:
            assert self._read(deadline), f"{text!r} did not appear in {self.output!r}"

    def wait(self) -> int:
        """Read to the end; returns the exit code."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._read(deadline):
            pass
        return self._process.wait(PATIENCE_SECONDS)

    def _read(self, deadline: float) -> bool:
        """Read what is there, or wait for it; returns whether there was anything."""
        if not select.select([self._own], [], [], max(0, deadline - time.monotonic()))[0]:
            return False
        try:
            data = os.read(self._own, CHUNK_BYTES)
        except OSError:  # Linux: the last process has closed the terminal
            return False
        self.output += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)


def run_at_terminal(argv: list[str], environment: dict[str, str], folder: Path, answer: str = "") -> tuple[str, int]:
    """Run a program to its end; returns what the terminal received, and the exit code."""
    with Terminal(argv, environment, folder) as terminal:
        if answer:
            terminal.send(answer)
        code = terminal.wait()
    return terminal.output, code


def show_in_tmux(
    command: str, environment: dict[str, str], folder: Path, *, columns: int = 100, rows: int = 200
) -> str:
    """Run a shell command in a window of tmux; returns what the window shows when the command has ended."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed (Debian: apt install tmux)")
    with tempfile.TemporaryDirectory(dir="/tmp") as place:  # `tmp_path` may be too long for the path of a socket
        tmux = ["tmux", "-S", f"{place}/socket", "-f", "/dev/null"]
        end = f"printf 'exit code %s' $?; {' '.join(tmux)} wait-for -S over; exec cat"

        def run(*argv: str) -> str:
            return subprocess.run(
                [*tmux, *argv],
                env={**environment, "TERM": "screen", "LC_ALL": "C.UTF-8"},
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=PATIENCE_SECONDS,
                check=True,
            ).stdout

        run("new-session", "-d", "-x", str(columns), "-y", str(rows), f"sh -c {shlex.quote(command)}; {end}")
        try:
            run("wait-for", "over")
            return run("capture-pane", "-p", "-e").rstrip("\n")
        finally:
            run("kill-server")
