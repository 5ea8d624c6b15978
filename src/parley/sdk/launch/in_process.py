"""The engine in this process: the same lines, without a child.

It is composed from the same command line and environment as a process would be, so both say
the same, and ends as one does: with an exit code, and its complaints as stderr. On asyncio it
shares the program's loop; on trio it has a thread with a loop of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from parley.sdk.errors import CLIConnectionError
from parley.sdk.runtime.background import Job, log, on_trio, start
from parley.sdk.runtime.transport import Ended, Wire

if TYPE_CHECKING:
    from parley.engine.session.session import Session
    from parley.transports.base import Transport

STOP_SECONDS = 5.0
"""How long an engine has to end by itself, and again when it is told to."""


class Seat:
    """One engine in this process: what it is started with, and how it ended."""

    def __init__(
        self, argv: Sequence[str], cwd: str, environment: Mapping[str, str], told: Callable[[str], None]
    ) -> None:
        self.argv = list(argv)
        self.session: Session | None = None
        self.exit_code: int | None = None
        self._cwd = cwd
        self._environment = dict(environment)
        self._told = told
        self._complaints: list[str] = []

    def complain(self, text: str) -> None:
        self._complaints.append(text)
        try:
            self._told(text)
        except Exception:
            log.exception("the callback for stderr failed")

    def ended(self) -> Ended:
        return Ended(self.exit_code, "\n".join(self._complaints)[-64 * 1024 :], tuple(self.argv))

    async def run(self, transport: Transport) -> None:
        """Serve the session to its end."""
        from parley.compose.composer import Composer
        from parley.compose.registry import dialect
        from parley.engine.clock import Stamp
        from parley.engine.session.hub import Hub
        from parley.engine.session.no_session import no_session
        from parley.engine.session.pump import Pump, serve
        from parley.errors import SessionError, UsageError
        from parley.protocol.connection import Connection
        from parley.protocol.options import parse
        from parley.protocol.roles import Role

        self.exit_code, stamp, hub = 1, Stamp(), Hub()
        try:
            parsed = parse(self.argv)
            for warning in parsed.warnings:
                self.complain(warning)
            options = parsed.options
            connection = Connection(Role.ENGINE, dialect(options, stamp))
            pump = Pump(connection, transport, stamp.new_uuid)
            setup = Composer(options, self._environment, self._cwd, stamp).setup(self.complain)
            session = self.session = hub.open(setup, pump)
        except UsageError as flaw:
            self.complain(f"Error: {flaw}")
        except (SessionError, OSError) as flaw:
            self.complain(str(flaw))
            asked = options.resume or options.session_id or stamp.new_uuid()
            transport.write(connection.send(no_session(str(flaw), asked, stamp)))
        else:
            try:
                await serve(transport, pump, session)
            finally:
                hub.close(session.id)  # somebody else may want it, also where we are cancelled
            last = session.turns.last_result
            self.exit_code = 1 if last is not None and last.is_error is True else 0

    def stop(self) -> None:
        """End soon, whatever runs."""
        if self.session is not None:
            self.session.stop()


class Here:
    """On the program's own asyncio loop."""

    pid = None

    def __init__(self, seat: Seat) -> None:
        from parley.transports.memory import pair

        self._seat = seat
        self._host, self._engine = pair()
        self._serving: Job | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._serving = start(self._run)

    async def _run(self) -> None:
        try:
            await self._seat.run(self._engine)
        finally:
            self._engine.close()

    def chunks(self) -> AsyncIterator[bytes]:
        return self._host.chunks()

    def write(self, data: bytes) -> None:
        try:
            self._host.write(data)
        except BrokenPipeError:
            raise CLIConnectionError("the engine does not read any more") from None

    async def flush(self) -> None:
        """Nothing is held back."""

    async def end_input(self) -> None:
        self._host.close()

    async def ended(self) -> Ended:
        if self._serving is not None:
            await self._serving.wait()
        return self._seat.ended()

    async def close(self, busy: bool) -> Ended:
        if self._serving is not None:
            if busy:
                self._seat.stop()
            self._host.close()
            try:
                await self._ended_or_cancelled(self._serving)
            except asyncio.CancelledError:
                self.abandon()
                raise
        return self._seat.ended()

    async def _ended_or_cancelled(self, serving: Job) -> None:
        ways: tuple[Callable[[], None], ...] = (lambda: None, self._seat.stop, serving.cancel)
        for end in ways:
            end()
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await serving.wait()
                    return

    def abandon(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            with suppress(RuntimeError):  # it may close just now
                self._loop.call_soon_threadsafe(self._leave)

    def _leave(self) -> None:
        self._seat.stop()
        self._host.close()


class Aside:
    """In a thread with an asyncio loop of its own, for programs on trio."""

    pid = None

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._loop: asyncio.AbstractEventLoop | None = None
        self._incoming: asyncio.Queue[bytes | None] | None = None
        self._early: list[bytes | None] = []
        self._lock = threading.Lock()
        self._over = False

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
            self._over = True
            self._hand_over(self._push.close)
            self._hand_over(self._ended.set)

    async def _serve(self) -> None:
        with self._lock:
            self._loop, self._incoming = asyncio.get_running_loop(), asyncio.Queue()
            for data in self._early:
                self._incoming.put_nowait(data)
        await self._seat.run(Threaded(self._incoming, lambda data: self._hand_over(self._push.send_nowait, data)))

    def _hand_over(self, act: Callable[..., Any], *given: Any) -> None:
        import trio

        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(act, *given)

    def _put(self, data: bytes | None) -> None:
        with self._lock:
            if self._loop is None or self._incoming is None:
                self._early.append(data)
            else:
                with suppress(RuntimeError):  # its loop is closed
                    self._loop.call_soon_threadsafe(self._incoming.put_nowait, data)

    async def chunks(self) -> AsyncIterator[bytes]:
        import trio

        while True:
            try:
                yield await self._pull.receive()
            except trio.EndOfChannel:
                return

    def write(self, data: bytes) -> None:
        if self._over:
            raise CLIConnectionError("the engine does not read any more")
        self._put(data)

    async def flush(self) -> None:
        """Nothing is held back."""

    async def end_input(self) -> None:
        self._put(None)

    async def ended(self) -> Ended:
        await self._ended.wait()
        return self._seat.ended()

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
            if self._over:
                break
        self._pull.close()
        return self._seat.ended()

    def _stop(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._seat.stop)

    def abandon(self) -> None:
        self._stop()
        self._put(None)


class Threaded:
    """The engine's end of a line between two threads."""

    def __init__(self, incoming: asyncio.Queue[bytes | None], outgoing: Callable[[bytes], None]) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    async def chunks(self) -> AsyncIterator[bytes]:
        while (chunk := await self._incoming.get()) is not None:
            yield chunk

    def write(self, data: bytes) -> None:
        self._outgoing(data)

    async def drain(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """The thread's end says so."""


def seated(seat: Seat) -> Wire:
    """The way to an engine in this process."""
    return Aside(seat) if on_trio() else Here(seat)
