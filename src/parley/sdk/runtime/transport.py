"""Transports.

Wire        what every way can do; launch/process.py and launch/in_process.py are two, a socket can be another
Ended       how an engine ended
Transport   the official interface for ways of one's own: lines out, objects in
Custom      such a transport as a Wire
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from parley.protocol.base import Json
from parley.sdk.errors import CLIConnectionError
from parley.sdk.runtime.background import Job, start


@dataclass(frozen=True)
class Ended:
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
    async def connect(self) -> None: ...

    @abstractmethod
    async def write(self, data: str) -> None: ...

    @abstractmethod
    def read_messages(self) -> AsyncIterator[dict[str, Any]]: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    def is_ready(self) -> bool: ...

    @abstractmethod
    async def end_input(self) -> None: ...


class CustomWire:
    """A `Transport` of the program, as a Wire. One job at a time writes its lines, each of them whole."""

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
                    raise CLIConnectionError("the transport is not ready for writing")
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
            raise CLIConnectionError(f"the transport cannot write: {self._error}") from self._error

    async def end_input(self) -> None:
        await self.flush()
        await self._transport.end_input()

    async def ended(self) -> Ended:
        return Ended()

    async def close(self, busy: bool) -> Ended:
        await self._transport.close()
        return Ended()

    def abandon(self) -> None:
        """It is the program's own: what it left open is its to close."""


def encode_message(message: Json) -> bytes:
    """An object as a line; what is no JSON is a line that nobody can read, which the stream survives."""
    try:
        return msgspec.json.encode(message)
    except (TypeError, ValueError, msgspec.MsgspecError) as exc:
        return repr(exc).encode()


def write_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
