"""A TCP proxy on loopback that can be cut, silenced and slowed down: the network between two processes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self


class TcpProxy:
    """Passes bytes to a port of loopback.

    `cut()` ends the connections and refuses new ones, `silence()` keeps them open but passes nothing, as a network
    does that loses every packet. `heal()` undoes both. `delay_seconds` delays what passes.
    """

    def __init__(self, target_port: int, delay_seconds: float = 0) -> None:
        self.port = 0
        self.delay_seconds = delay_seconds
        self._target_port = target_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_cut = False
        self._flows = asyncio.Event()
        self._flows.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def cut(self) -> None:
        self._is_cut = True
        for writer in list(self._writers):
            writer.transport.abort()

    def silence(self) -> None:
        self._flows.clear()

    def heal(self) -> None:
        self._is_cut = False
        self._flows.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        try:
            onward_reader, onward = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, onward}
        for source, target in ((reader, onward), (onward_reader, writer)):
            task = asyncio.create_task(self._pass_on(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._flows.wait()
                if self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
        self._writers.discard(writer)
