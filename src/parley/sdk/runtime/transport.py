"""Transports.

Wire         the interface that the client uses; implemented in launch/process.py and launch/in_process.py
Ended        how an engine exited
Transport    the official SDK's interface for custom transports: lines out, objects in
CustomWire   adapts a Transport to Wire
"""

from __future__ import annotations

import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from parley.protocol.base import Json
from parley.sdk.errors import CLIConnectionError, name_options
from parley.sdk.runtime.background import Job, start

engine_log = logging.getLogger("parley.engine")


@dataclass(frozen=True)
class Ended:
    """How an engine exited."""

    exit_code: int | None = None
    """None if there is no process or it was not awaited."""
    stderr: str = ""
    """The last lines of stderr."""
    argv: Sequence[str] = ()


class Wire(Protocol):
    """A connection to one engine, used once."""

    @property
    def pid(self) -> int | None:
        """The engine's process id, if it has its own process."""

    async def open(self) -> None:
        """Connect. Raises CLIConnectionError after cleaning up."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The engine's output, until it closes the connection."""

    def write(self, data: bytes) -> None:
        """Queue whole lines without waiting. Raises CLIConnectionError."""

    async def flush(self) -> None:
        """Wait until the engine has read what was written. Raises CLIConnectionError."""

    async def end_input(self) -> None:
        """Close the engine's input."""

    async def ended(self) -> Ended:
        """How the engine exited, after its last chunk."""

    async def close(self, busy: bool) -> Ended:
        """End the engine and its children. `busy`: it is working, so do not wait for it."""

    def abandon(self) -> None:
        """End the engine without waiting, from any thread or loop."""


class Transport(ABC):
    """A custom transport: it takes lines and yields dicts."""

    @abstractmethod
    async def connect(self) -> None:
        """Connect to the engine."""

    @abstractmethod
    async def write(self, data: str) -> None:
        """Send a line."""

    @abstractmethod
    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the messages of the engine, until it closes the connection."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether lines can be sent."""

    @abstractmethod
    async def end_input(self) -> None:
        """Close the engine's input."""


class CustomWire:
    """Adapts a program's `Transport` to `Wire`. One job at a time writes, so lines are never mixed."""

    pid = None

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._held: list[bytes] = []
        self._writing: Job | None = None
        self._error: Exception | None = None

    async def open(self) -> None:
        await self._transport.connect()

    async def chunks(self) -> AsyncIterator[bytes]:
        async for message in self._transport.read_messages():
            yield encode_message(message) + b"\n"

    def write(self, data: bytes) -> None:
        self._held.append(data)
        if self._writing is None:
            self._writing = start(self._write_held)

    async def _write_held(self) -> None:
        try:
            while self._held:
                if not self._transport.is_ready():
                    raise CLIConnectionError("the transport is not ready: is_ready() returned False")
                await self._transport.write(self._held.pop(0).decode())
        except Exception as exc:
            self._error = exc
            self._held.clear()
        finally:
            self._writing = None

    async def flush(self) -> None:
        while (job := self._writing) is not None:
            await job.wait()
        if self._error is not None:
            raise CLIConnectionError(f"writing to the transport failed: {self._error}") from self._error

    async def end_input(self) -> None:
        await self.flush()
        await self._transport.end_input()

    async def ended(self) -> Ended:
        return Ended()

    async def close(self, busy: bool) -> Ended:
        await self._transport.close()
        return Ended()

    def abandon(self) -> None:
        """No effect: the program closes its own transport."""


def encode_message(message: Json) -> bytes:
    """Encode a message. One that is not JSON becomes an invalid line, which the reader reports and skips."""
    try:
        return msgspec.json.encode(message)
    except (TypeError, ValueError, msgspec.MsgspecError) as exc:
        return repr(exc).encode()


def log_line(line: str) -> None:
    """Log a line of an engine that runs in this process, whose stderr is not its own."""
    engine_log.warning("%s", name_options(line))


def write_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
