"""A conversation with the real executable, in the words of `SessionHarness`.

    async with ProcessHarness(tmp_path, script("Hello."), "--include-partial-messages") as harness:
        harness.prompt("Hi")
        result = await harness.receive("result")

The process works in the folder and finds nothing of the person who runs the tests. It must exit with `exit_code`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.helpers.forked import PARLEY, ForkedPipes, needs_start
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.session import Json, SessionHarness

STREAM = ("--print", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json")


def kill(process: Process | ForkedPipes) -> None:
    """Kill a process without reaping it.

    `Process.kill` polls first. If the process has just exited, that takes its exit status away from the event loop,
    which then reports 255 (CPython 3.11).
    """
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def read_proc(pid: int, name: str) -> bytes:
    """What `/proc` shows of a process to its own user; nothing if the process hides it from everyone but root."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except PermissionError:
        return b""


class Pipes:
    """The client's end of the pipes of a process."""

    def __init__(self, process: Process | ForkedPipes) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    def write(self, data: bytes) -> None:
        self._stdin.write(data)

    def close(self) -> None:
        self._stdin.close()

    async def chunks(self) -> AsyncIterator[bytes]:
        while data := await self._stdout.read(1 << 16):
            yield data


class ProcessHarness(SessionHarness):
    """A session in a process of its own; `settings` are those of `--settings`, other names are variables."""

    def __init__(self, folder: Path, script: str, *argv: str, settings: Json | None = None, **environment: Any) -> None:
        super().__init__(folder, script)
        self.environment |= {"PATH": os.environ["PATH"], **environment}
        self.exit_code = 0
        self.launcher: tuple[str, ...] = ()
        """A program that runs the executable, with its arguments."""
        self.argv = [*STREAM, "--model", f"scripted:{folder / 'script.toml'}", *argv]
        if settings is not None:
            self.argv += ["--settings", json.dumps(settings)]

    async def __aenter__(self) -> ProcessHarness:
        with (self.folder / "stderr").open("wb") as stderr:
            self.process: Process | ForkedPipes
            if self.launcher or needs_start(self.environment):
                argv = [*self.launcher, PARLEY, *self.argv]
                self.process = await asyncio.create_subprocess_exec(
                    *argv, cwd=self.folder, env=self.environment, stdin=PIPE, stdout=PIPE, stderr=stderr
                )
            else:
                self.process = await ForkedPipes.start(
                    self.argv, cwd=self.folder, env=self.environment, stderr=stderr.fileno()
                )
        self._host: Any = Pipes(self.process)
        self._listening = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, *problem: object) -> None:
        if problem[0] is None:
            await self.close()
        elif self.process.returncode is None:
            kill(self.process)
            await self.process.wait()
        await self._listening

    async def close(self) -> None:
        """End the input, and wait until the process has ended."""
        self._host.close()
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await self.process.wait()
            await self._listening
        self.warnings = (self.folder / "stderr").read_text().splitlines()
        assert code == self.exit_code, self.warnings

    async def receive_until(self, wanted: Any) -> Json:
        waiting = asyncio.ensure_future(super().receive_until(wanted))
        await asyncio.wait({waiting, self._listening}, return_when=asyncio.FIRST_COMPLETED)
        if self._listening.done() and not waiting.done():
            waiting.cancel()
            for line in self.lines[self._seen :]:
                self._seen += 1
                if wanted(line):
                    return line
            raise AssertionError(f"the process ended: {(self.folder / 'stderr').read_text()}")
        return await waiting

    async def answer(self, subtype: str, **fields: Any) -> Json:
        """What a control request is answered with."""
        response: Json = (await self.request(subtype, **fields))["response"]
        assert response["subtype"] == "success", response
        payload: Json = response.get("response", {})
        return payload

    async def refusal(self, subtype: str, **fields: Any) -> str:
        """Why a control request is refused."""
        response: Json = (await self.request(subtype, **fields))["response"]
        assert response["subtype"] == "error", response
        return str(response["error"])

    async def turn(self, text: str = "go") -> Json:
        """The result of a prompt."""
        self.prompt(text)
        return await self.receive("result")

    def of(self, subtype: str) -> list[Json]:
        """The system messages of a subtype."""
        return [line for line in self.messages("system") if line["subtype"] == subtype]
