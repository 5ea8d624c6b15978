"""Run the engine in this process instead of a subprocess.

It is built from the same command line and environment as a subprocess, sends the same messages, and
ends the same way: with an exit code and its warnings as stderr. On asyncio it shares the program's
event loop; on trio it runs in a thread with its own loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from parley.local_engine import LocalEngine
from parley.sdk.errors import CLIConnectionError
from parley.sdk.runtime.background import Job, log, on_trio, start
from parley.sdk.runtime.transport import Ended, Wire

if TYPE_CHECKING:
    from parley.transports.base import Transport

STOP_SECONDS = 5.0
"""How long an engine has to finish by itself, and again after `stop()`."""


class InProcessEngine(LocalEngine):
    """An engine in this process, as the client sees it."""

    def __init__(
        self,
        argv: Sequence[str],
        cwd: str,
        environment: Mapping[str, str],
        on_stderr: Callable[[str], None],
        cleanup: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(argv, cwd, environment)
        self._on_stderr = on_stderr
        self._cleanup = cleanup

    def warn(self, text: str) -> None:
        super().warn(text)
        try:
            self._on_stderr(text)
        except Exception:
            log.exception("the stderr callback raised an exception")

    def ended(self) -> Ended:
        return Ended(self.exit_code, self.stderr(), tuple(self.argv))

    async def run(self, transport: Transport) -> None:
        """Serve the session until it ends."""
        try:
            await super().run(transport)
        finally:
            self._cleanup()


class SameLoop:
    """Runs the engine on the program's asyncio loop."""

    pid = None

    def __init__(self, engine: InProcessEngine) -> None:
        from parley.transports.base import create_pair

        self._runner = engine
        self._host, self._engine = create_pair()
        self._serving: Job | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._serving = start(self._run)

    async def _run(self) -> None:
        try:
            await self._runner.run(self._engine)
        finally:
            self._engine.close()

    def chunks(self) -> AsyncIterator[bytes]:
        return self._host.chunks()

    def write(self, data: bytes) -> None:
        try:
            self._host.write(data)
        except BrokenPipeError:
            raise CLIConnectionError("the engine no longer reads its input") from None

    async def flush(self) -> None:
        """Nothing is buffered."""

    async def end_input(self) -> None:
        self._host.close()

    async def ended(self) -> Ended:
        if self._serving is not None:
            await self._serving.wait()
        return self._runner.ended()

    async def close(self, busy: bool) -> Ended:
        if self._serving is not None:
            if busy:
                self._runner.stop()
            self._host.close()
            try:
                await self._ended_or_cancelled(self._serving)
            except asyncio.CancelledError:
                self.abandon()
                raise
        return self._runner.ended()

    async def _ended_or_cancelled(self, serving: Job) -> None:
        ways: tuple[Callable[[], None], ...] = (lambda: None, self._runner.stop, serving.cancel)
        for end in ways:
            end()
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await serving.wait()
                    return

    def abandon(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            with suppress(RuntimeError):  # the loop may close at this moment
                self._loop.call_soon_threadsafe(self._leave)

    def _leave(self) -> None:
        self._runner.stop()
        self._host.close()


class OtherThread:
    """Runs the engine in a thread with its own asyncio loop, for programs on trio."""

    pid = None

    def __init__(self, engine: InProcessEngine) -> None:
        self._runner = engine
        self._loop: asyncio.AbstractEventLoop | None = None
        self._incoming: asyncio.Queue[bytes | None] | None = None
        self._early: list[bytes | None] = []
        self._lock = threading.Lock()
        self._finished = False

    async def open(self) -> None:
        import trio

        self._token = trio.lowlevel.current_trio_token()
        self._push, self._pull = trio.open_memory_channel[bytes](float("inf"))
        self._ended = trio.Event()
        self._thread = threading.Thread(target=self._work, name="parley engine", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:
            log.exception("the engine in this process failed")
        finally:
            self._finished = True
            self._call_in_trio(self._push.close)
            self._call_in_trio(self._ended.set)

    async def _serve(self) -> None:
        with self._lock:
            self._loop, self._incoming = asyncio.get_running_loop(), asyncio.Queue()
            for data in self._early:
                self._incoming.put_nowait(data)
        await self._runner.run(
            ThreadTransport(self._incoming, lambda data: self._call_in_trio(self._push.send_nowait, data))
        )

    def _call_in_trio(self, act: Callable[..., Any], *given: Any) -> None:
        import trio

        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(act, *given)

    def _put(self, data: bytes | None) -> None:
        with self._lock:
            if self._loop is None or self._incoming is None:
                self._early.append(data)
            else:
                with suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._incoming.put_nowait, data)

    async def chunks(self) -> AsyncIterator[bytes]:
        import trio

        while True:
            try:
                yield await self._pull.receive()
            except trio.EndOfChannel:
                return

    def write(self, data: bytes) -> None:
        if self._finished:
            raise CLIConnectionError("the engine no longer reads its input")
        self._put(data)

    async def flush(self) -> None:
        """Nothing is buffered."""

    async def end_input(self) -> None:
        self._put(None)

    async def ended(self) -> Ended:
        await self._ended.wait()
        return self._runner.ended()

    async def close(self, busy: bool) -> Ended:
        if busy:
            self._stop()
        self._put(None)
        from anyio import move_on_after

        ways: tuple[Callable[[], None], ...] = (lambda: None, self._stop)
        for end in ways:
            end()
            with move_on_after(STOP_SECONDS):
                await self._ended.wait()
            if self._finished:
                break
        self._pull.close()
        return self._runner.ended()

    def _stop(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._runner.stop)

    def abandon(self) -> None:
        self._stop()
        self._put(None)


class ThreadTransport:
    """The engine's end of a connection between two threads."""

    def __init__(self, incoming: asyncio.Queue[bytes | None], outgoing: Callable[[bytes], None]) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    async def chunks(self) -> AsyncIterator[bytes]:
        while (chunk := await self._incoming.get()) is not None:
            yield chunk

    def write(self, data: bytes) -> None:
        self._outgoing(data)

    async def drain(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        """The client sees the end when the thread finishes."""


def connect_in_process(engine: InProcessEngine) -> Wire:
    """Return a connection to an engine in this process."""
    return OtherThread(engine) if on_trio() else SameLoop(engine)
