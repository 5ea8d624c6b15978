"""An HTTP server on loopback that answers from a list and keeps what it heard.

async with loopback(stream(b"data: {}\\n\\n"), whole(529, b"busy")) as server:
    ... server.url, server.heard, server.connections
"""

from __future__ import annotations

import asyncio
import subprocess
from asyncio import IncompleteReadError, StreamReader, StreamWriter, Task
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext

from parley.protocol.base import Struct

EVENT_STREAM = {"content-type": "text/event-stream"}


class Request(Struct, frozen=True):
    """A request as it came off the wire."""

    line: str
    headers: dict[str, str]
    body: bytes


class Line:
    """The server's end of one connection."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        await self.write(f"HTTP/1.1 {status} X\r\n{fields}\r\n".encode())

    async def piece(self, data: bytes) -> None:
        """One piece of a chunked body; the empty one ends it."""
        await self.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def hung_up(self) -> None:
        """Wait until the client lets go."""
        with suppress(ConnectionError):
            await self.reader.read()


Answer = Callable[[Line], Awaitable[bool]]
"""Writes a response; True if the connection may be used again."""


def stream(*pieces: bytes, headers: Mapping[str, str] | None = None) -> Answer:
    """A whole chunked event stream."""

    async def answer(line: Line) -> bool:
        await line.begin(200, {**EVENT_STREAM, "transfer-encoding": "chunked", **(headers or {})})
        for piece in (*pieces, b""):
            await line.piece(piece)
        return True

    return answer


def whole(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
    async def answer(line: Line) -> bool:
        await line.begin(status, {"content-length": str(len(body)), **(headers or {})})
        await line.write(body)
        return True

    return answer


def cut_off(*pieces: bytes) -> Answer:
    """A chunked stream that ends without its end."""

    async def answer(line: Line) -> bool:
        await line.begin(200, {**EVENT_STREAM, "transfer-encoding": "chunked"})
        for piece in pieces:
            await line.piece(piece)
        return False

    return answer


def until_close(body: bytes) -> Answer:
    """A body without a length: it ends where the connection ends."""

    async def answer(line: Line) -> bool:
        await line.begin(200, {**EVENT_STREAM, "connection": "close"})
        await line.write(body)
        return False

    return answer


def silence(*pieces: bytes, started: bool = True) -> Answer:
    """A stream that stops and stays silent until the client hangs up; not even started if so wanted."""

    async def answer(line: Line) -> bool:
        if started:
            await line.begin(200, {**EVENT_STREAM, "transfer-encoding": "chunked"})
        for piece in pieces:
            await line.piece(piece)
        await line.hung_up()
        return False

    return answer


def endless(piece: bytes) -> Answer:
    """The same piece again and again, until the client hangs up."""

    async def answer(line: Line) -> bool:
        await line.begin(200, {**EVENT_STREAM, "transfer-encoding": "chunked"})
        with suppress(ConnectionError):
            while not line.writer.is_closing():
                await line.piece(piece)
        return False

    return answer


class Loopback:
    def __init__(self, answers: tuple[Answer, ...]) -> None:
        self.heard: list[Request] = []
        self.connections = 0
        self.url = ""
        self.asked = asyncio.Event()
        """Set with the first request."""
        self.ended: asyncio.Queue[int] = asyncio.Queue()
        """The numbers of the connections that are over, as they end."""
        self._answers = list(answers)
        self._tasks: list[Task[None]] = []

    def accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.connections += 1
        self._tasks.append(asyncio.create_task(self._converse(Line(reader, writer), self.connections)))

    async def finish(self) -> None:
        for task in self._tasks:
            task.cancel()
        for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended

    async def _converse(self, line: Line, number: int) -> None:
        try:
            goes_on = True
            while goes_on:
                try:
                    self.heard.append(await read_request(line.reader))
                    self.asked.set()
                except (IncompleteReadError, ConnectionError):
                    return
                goes_on = await self._answers.pop(0)(line)
        finally:
            self.ended.put_nowait(number)
            line.writer.close()
            with suppress(ConnectionError):
                await line.writer.wait_closed()


async def read_request(reader: StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Request(first, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


def self_signed(folder: Path, name: str) -> SSLContext:
    """The TLS of a server that vouches for itself, as `IP:127.0.0.1` or `DNS:host`, in `certificate.pem`."""
    subject = ["-subj", f"/CN={name.partition(':')[2]}", "-addext", f"subjectAltName={name}"]
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", *subject]
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


@asynccontextmanager
async def loopback(*answers: Answer, tls: SSLContext | None = None) -> AsyncIterator[Loopback]:
    """A server that gives these answers, one a request."""
    heard = Loopback(answers)
    server = await asyncio.start_server(heard.accept, "127.0.0.1", 0, ssl=tls)
    heard.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield heard
    finally:
        server.close()
        await heard.finish()
        await server.wait_closed()
