"""An MCP server that runs as a child process: lines of JSON on its stdin and stdout.

It runs under the process supervisor like every command, so it ends with the engine, even after a crash. A line that is
not JSON is dropped and kept with its stderr. A line over the size limit ends the connection. So does the end of its
output: a server that closed its stdout is stopped.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from parley.errors import ToolError
from parley.mcp.base import TAIL_BYTES, ConnectionLost, ServerSpec, ServerTransport
from parley.protocol.base import Json, encode_json, replace_lone_surrogates
from parley.protocol.framing import Framer, Line, OverlongLine
from parley.workspace.process.processes import CommandStarter, PreparedCommand, RunningCommand

MAX_LINE_BYTES = 32 << 20
GRACE_SECONDS = 0.5
"""From closing stdin to SIGTERM, and from the end of the output to reporting the loss."""


class Stdio(ServerTransport):
    def __init__(self, spec: ServerSpec, processes: CommandStarter, cwd: str, environment: Mapping[str, str]) -> None:
        super().__init__()
        self._spec = spec
        self._processes = processes
        self._cwd = os.path.join(cwd, spec.cwd or "")
        self._environment = {**environment, **spec.env}
        self._command: RunningCommand | None = None
        self._framer = Framer(MAX_LINE_BYTES)
        self._errors = bytearray()

    async def open(self, on_message: Callable[[Json], None], on_lost: Callable[[ConnectionLost | str], None]) -> None:
        """Raises ConnectionLost."""
        await super().open(on_message, on_lost)
        try:
            argv = [await self._find_program(), *self._spec.args]
            prepared = PreparedCommand(argv=argv, cwd=self._cwd, environment=self._environment)
            self._command = await self._processes.start(prepared, self._read, self._append_stderr)
        except ToolError as exc:
            raise ConnectionLost(str(exc)) from None
        self._command.ended.add_done_callback(self._on_exit)
        self._command.output_ended.add_done_callback(self._on_output_closed)

    async def _find_program(self) -> str:
        """The path of the server's program. Raises ConnectionLost, ToolError."""
        command = self._spec.command
        if os.sep in command:
            home = self._environment.get("HOME", "")
            return os.path.join(self._cwd, os.path.join(home, command[2:]) if command.startswith("~/") else command)
        found = await self._processes.find_program(command, self._environment.get("PATH", os.defpath))
        if found is None:
            raise ConnectionLost(f"the server cannot be started: no program {command!a} in PATH")
        return found

    async def send(self, message: Json) -> None:
        """Raises ConnectionLost."""
        command = self._command
        if command is None or command.feed is None:
            raise ConnectionLost("the server was not started")
        try:
            command.feed.put(encode_json(message) + b"\n")
        except BrokenPipeError as exc:
            await asyncio.wait(
                {command.ended}, timeout=GRACE_SECONDS
            )  # it has probably exited, and the exit code says more
            raise ConnectionLost(self._exit_text() or f"the server does not read its input: {exc.strerror}") from None
        except OSError as exc:
            raise ConnectionLost(f"the server does not read its input: {exc.strerror}") from None

    async def close(self) -> None:
        self._silence()
        command = self._command
        if command is None or command.ended.done():
            return
        if command.feed is not None:
            command.feed.close()
        try:
            await asyncio.wait({command.ended}, timeout=GRACE_SECONDS)
        finally:
            command.stop()

    def stderr_tail(self) -> str:
        return bytes(self._errors).decode(errors="replace")

    def _on_exit(self, over: object) -> None:
        self._on_lost(self._exit_text() or "ended")

    def _on_output_closed(self, ended: object) -> None:
        """It can no longer answer. The exit code, if known soon, is the better reason."""
        asyncio.get_running_loop().call_later(GRACE_SECONDS, lambda: self._on_lost("the server closed its output"))

    def _exit_text(self) -> str:
        """How it exited; empty while it runs."""
        if self._command is None or not self._command.ended.done():
            return ""
        return f"the server ended with exit code {self._command.ended.result().exit_code}"

    def _append_stderr(self, data: bytes) -> None:
        self._errors = (self._errors + data)[-TAIL_BYTES:]

    def _read(self, data: bytes) -> None:
        for line in self._framer.feed(data):
            self._handle_line(line)

    def _handle_line(self, line: Line) -> None:
        if isinstance(line, OverlongLine):
            self._on_lost(f"the server sent a line of more than {line.cap_bytes >> 20} MB")
            if self._command is not None:
                self._command.stop()
            return
        messages = parse_messages(line)
        if not messages and line.strip():  # a stray print may explain a failure
            self._append_stderr(line[:TAIL_BYTES] + b"\n")
        for message in messages:
            self._on_message(message)


def decode_line(line: bytes) -> Any:
    """Parse a line of JSON. An incomplete character, as in a truncated text, is replaced.

    Raises msgspec.DecodeError or RecursionError.
    """
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        whole = line.decode(errors="replace").encode()
        return msgspec.json.decode(replace_lone_surrogates(whole) or whole)


def parse_messages(line: bytes) -> list[Json]:
    """The messages of a line: one, or a batch from an old server; none if it is not JSON."""
    try:
        value = decode_line(line)
    except (msgspec.DecodeError, RecursionError):
        return []
    return [message for message in (value if isinstance(value, list) else [value]) if isinstance(message, dict)]
