"""`!command`: run a command of the person's own, on this machine, and show its output to the person and the model."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress

from parley.settings.secret_variables import without_secrets

MAX_CHARS = 20_000
"""How much of an output the model gets."""


class ShellCommand:
    def __init__(self, command: str, cwd: str, print_line: Callable[[str], None]) -> None:
        self.command = command
        self._cwd = cwd
        self._print_line = print_line
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> str:
        """Run it to its end; returns what the model is told."""
        process = self._process = await asyncio.create_subprocess_shell(
            self.command,
            cwd=self._cwd,
            env=without_secrets(os.environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            limit=1 << 20,
        )
        assert process.stdout is not None
        kept: list[str] = []
        size = 0
        with suppress(ValueError):  # a line that is longer than the limit
            async for data in process.stdout:
                line = data.decode(errors="replace").rstrip("\r\n")
                self._print_line(line)
                if size < MAX_CHARS:
                    kept.append(line)
                    size += len(line)
        code = await process.wait()
        output = "\n".join(kept)[:MAX_CHARS]
        return f"I ran this command myself (exit code {code}):\n$ {self.command}\n{output}"

    def stop(self) -> None:
        """Kill it, and what it started."""
        if self._process is not None and self._process.returncode is None:
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
