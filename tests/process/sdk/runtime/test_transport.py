"""Custom connections to an engine: a socket, and a `Transport` of the official SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from parley import CLIConnectionError, Client, Ended, Options, query
from parley.protocol.options import CliOptions as Flags
from parley.protocol.options import format_args
from parley.sdk.launch.in_process import InProcessEngine
from tests.helpers.sdk import ClientHarness, kinds, run
from tests.process.sdk.test_client import TURN
from tests.unit.sdk.test_recorded_streams import Tape


class Socket:
    """A `Wire` over a socket, with everything that a wire needs."""

    pid = None

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held = b""

    async def open(self) -> None:
        self._stream: SocketStream = await anyio.connect_unix(self._path)

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._stream:
                yield chunk
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return

    def write(self, data: bytes) -> None:
        self._held += data

    async def flush(self) -> None:
        data, self._held = self._held, b""
        if data:
            await self._stream.send(data)

    async def end_input(self) -> None:
        await self.flush()
        await self._stream.send_eof()

    async def ended(self) -> Ended:
        return Ended(0)

    async def close(self, busy: bool) -> Ended:
        await self._stream.aclose()
        return Ended(0)

    def abandon(self) -> None:
        """The other end sees the socket close when this process ends."""


class Lines:
    """The engine's end of a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self._reader.read(65536):
            yield chunk

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


def test_an_engine_behind_a_socket_is_an_engine(harness: ClientHarness) -> None:
    options = harness.options("local")
    flags = Flags(output_format="stream-json", input_format="stream-json", verbose=True, model=options.model)

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = Lines(reader, writer)
        await InProcessEngine(format_args(flags), str(options.cwd), options.env, harness.warnings.append).run(lines)
        lines.close()
        await writer.wait_closed()

    async def play() -> list[Any]:
        path = harness.folder / "socket"
        async with await asyncio.start_unix_server(served, path):
            async with Client(transport=Socket(path)) as client:
                text = await (await client.ask("Hi")).text()
            return [text, [message async for message in query(prompt="Hi", transport=Socket(path))]]

    text, messages = run("asyncio", play)

    assert (text, kinds(messages)) == ("Hello.", TURN)
    assert harness.warnings == []


class Closed(Tape):
    def is_ready(self) -> bool:
        return False


def test_a_transport_that_cannot_be_written_is_a_connection_error() -> None:
    async def play() -> None:
        await Client(Options(control_timeout_seconds=1), transport=Closed([])).connect()

    with pytest.raises(CLIConnectionError, match="not ready"):
        run("asyncio", play)
