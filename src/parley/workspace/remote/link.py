"""The engine's end of a connection to a workspace server.

    link = WorkspaceLink(LinkSettings(address=..., token=...), greeting)
    welcome = link.open()                       # raises WorkspaceUnavailable
    found = link.call(read_file(...))           # in a thread; raises ToolError, OSError, NotWritten
    found = await link.request(read_file(...))  # on a loop

A lost connection is dialled again. The calls that wait for an answer are then sent again under their numbers: a server
that still has the session (`Welcome.is_known`) answers from what it did the first time, so that nothing is done twice.
If it has forgotten them, only calls that read are repeated, and the others fail: it is not known what became of them.

A call that cannot be sent waits for the connection up to `wait_seconds`; then it fails with an error that names the
workspace. Safe to use from all threads.

All connections of this process share an event loop in a thread of its own. Files are read by worker threads,
permissions are decided on the engine's loop, and both may have to wait for the workspace: on its own loop a connection
lives through either, and answers pings.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.workspace.base import NotWritten
from parley.workspace.remote import wire
from parley.workspace.remote.address import WorkspaceAddress, describe, dial
from parley.workspace.remote.calls import Call, RequestBody, end_session
from parley.workspace.remote.wire import (
    BrokenFrame,
    CallFailure,
    Greeting,
    RejectedByServer,
    Welcome,
    WorkspaceChannel,
    greet,
)

T = TypeVar("T")
DIAL_SECONDS = 10.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 2.0
END_SECONDS = 2.0
POLL_SECONDS = 0.1
SLACK_SECONDS = 5.0
"""How long after the deadline of a call a thread gives up, should the loop of the connection not answer."""


class WorkspaceUnavailable(ToolError):
    """The workspace server does not answer, or refuses the engine. The text names it."""


class CommandSink(Protocol):
    """Takes the output of a command. Called on the loop of the connection."""

    def take_output(self, stream: int, offset: int, data: bytes) -> None: ...
    def resume(self) -> None:
        """The connection is back: report again how much was taken."""


class LinkSettings(Struct, frozen=True, kw_only=True):
    address: WorkspaceAddress
    token: str
    ca_file: str | None = None
    wait_seconds: float = 10.0
    """How long a call waits for a workspace that is not connected."""
    report: Callable[[str], None] = lambda text: None
    """Told when the connection is lost and when it is back."""


class WaitingCall(Generic[T]):
    def __init__(self, call: Call[T]) -> None:
        self.call = call
        self.done: concurrent.futures.Future[T] = concurrent.futures.Future()
        self.is_sent = False


class WorkspaceLink:
    def __init__(self, settings: LinkSettings, greeting: Greeting) -> None:
        self.settings = settings
        self.greeting = greeting
        self.welcome: Welcome | None = None
        self._lock = threading.Lock()
        self._next = 1
        self._loop = get_loop()
        self._pending: dict[int, WaitingCall[Any]] = {}
        self._settled: list[int] = []
        """The calls whose results have arrived since the last request."""
        self._sinks: dict[int, CommandSink] = {}
        self._channel: WorkspaceChannel | None = None
        self._connected: asyncio.Event = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._problem = ""
        self._watcher: Callable[[str], None] = lambda text: None
        self._was_connected = False
        self._is_closed = False

    @property
    def name(self) -> str:
        return f"the workspace at {self.settings.address}"

    def watch(self, report: Callable[[str], None]) -> None:
        """Also report here when the connection is lost and when it is back."""
        self._watcher = report

    def _report(self, text: str) -> None:
        self.settings.report(text)
        self._watcher(text)

    @property
    def is_connected(self) -> bool:
        return self._connected.is_set()

    def open(self) -> Welcome:
        """Connect. Raises WorkspaceUnavailable."""
        opening = asyncio.run_coroutine_threadsafe(self._open(), self._loop)
        try:
            return opening.result(max(self.settings.wait_seconds, DIAL_SECONDS) + SLACK_SECONDS)
        except concurrent.futures.TimeoutError:
            opening.cancel()
            raise self._unavailable("no answer") from None

    def end(self) -> None:
        """End the session on the server, if it is connected, and close the connection."""
        if self.is_connected and not self._is_closed:
            with contextlib.suppress(ToolError, OSError):
                self.call(end_session(), END_SECONDS)
        self.close()

    def close(self) -> None:
        """Close the connection without waiting. Calls that wait fail."""
        self._is_closed = True
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._shut_down)

    # Calling.

    def call(self, call: Call[T], at_most_seconds: float | None = None, poll: Callable[[], None] | None = None) -> T:
        """Call and wait, in any thread but that of the connection. Raises ToolError, OSError, NotWritten.

        `poll` is called while it waits.
        """
        limit = at_most_seconds
        if limit is None and call.operation.timeout_seconds is not None:
            limit = call.operation.timeout_seconds + self.settings.wait_seconds + SLACK_SECONDS
        pending, started_at = self._submit(call), time.monotonic()
        while True:
            left = None if limit is None else limit - (time.monotonic() - started_at)
            try:
                return pending.done.result(left if poll is None else POLL_SECONDS)
            except concurrent.futures.TimeoutError:
                if pending.done.done():
                    raise  # the call itself timed out on the server
                if limit is not None and (left is None or left <= POLL_SECONDS or poll is None):
                    self._give_up(pending)
                    raise self._unavailable(f"no answer within {limit:.0f} s") from None
            if poll is not None:
                poll()

    async def request(self, call: Call[T]) -> T:
        """Call and wait on a loop. Cancelling stops the call. Raises ToolError, OSError, NotWritten."""
        limit = call.operation.timeout_seconds
        pending = self._submit(call)
        try:
            async with asyncio.timeout(None if limit is None else limit + self.settings.wait_seconds):
                return await asyncio.wrap_future(pending.done)
        except TimeoutError:
            raise self._unavailable(f"no answer within {limit:.0f} s") from None
        finally:
            if not pending.done.done() or pending.done.cancelled():
                self._give_up(pending)

    def post(self, call: Call[Any], on_result: Callable[[Any], None] = lambda result: None) -> None:
        """Call without waiting. `on_result` gets the result, or the error as text, on the loop of the connection."""

        def report(done: concurrent.futures.Future[Any]) -> None:
            if not done.cancelled():
                exc = done.exception()
                on_result(done.result() if exc is None else str(exc))

        with contextlib.suppress(WorkspaceUnavailable):
            self._submit(call).done.add_done_callback(report)

    def _submit(self, call: Call[T]) -> WaitingCall[T]:
        pending = WaitingCall(call)
        try:
            self._loop.call_soon_threadsafe(self._enter, pending)
        except RuntimeError:
            raise self._unavailable("its connection has ended") from None
        return pending

    def _give_up(self, pending: WaitingCall[Any]) -> None:
        self._loop.call_soon_threadsafe(self._cancel, pending)

    # Output of commands.

    def new_number(self) -> int:
        with self._lock:
            self._next += 1
            return self._next

    def add_sink(self, command: int, sink: CommandSink) -> None:
        self._loop.call_soon_threadsafe(self._sinks.__setitem__, command, sink)

    def remove_sink(self, command: int) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._sinks.pop, command, None)

    def send_taken(self, command: int, stream: int, offset: int) -> None:
        """Say how much of a stream was taken, so that the server sends more."""
        body = wire.OFFSET.pack(stream, offset)
        self._loop.call_soon_threadsafe(lambda: wire.spawn(self._loop, self._send_frame(wire.TAKEN, command, body)))

    # On the loop of the connection.

    async def _open(self) -> Welcome:
        if self._runner is None:
            self._runner = asyncio.create_task(self._run())
        await self._wait_connected()
        assert self.welcome is not None
        return self.welcome

    async def _wait_connected(self) -> None:
        """Raises WorkspaceUnavailable."""
        waiting, runner = asyncio.ensure_future(self._connected.wait()), self._runner
        either = {waiting, *({runner} if runner is not None else ())}
        try:
            await asyncio.wait(either, timeout=self.settings.wait_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self._connected.is_set():
            return
        raise self._unavailable(self._problem or f"no connection within {self.settings.wait_seconds:.0f} s")

    def _enter(self, pending: WaitingCall[Any]) -> None:
        if self._is_closed:
            self._settle(pending, self._unavailable("the session has ended"))
            return
        number = self.new_number()
        self._pending[number] = pending
        wire.spawn(self._loop, self._send_call(number, pending))

    async def _send_call(self, number: int, pending: WaitingCall[Any]) -> None:
        try:
            if not self._connected.is_set():
                if self._runner is None or self._runner.done():
                    self._runner = asyncio.create_task(self._run())
                await self._wait_connected()
            if pending.is_sent or pending.done.done():
                return
            pending.is_sent = True
            settled, self._settled = self._settled, []
            body = wire.encode_body(RequestBody(settled, pending.call.message))
        except WorkspaceUnavailable as exc:
            self._pending.pop(number, None)
            self._settle(pending, exc)
            return
        except UnicodeEncodeError:
            self._pending.pop(number, None)
            self._settle(pending, ToolError("The path is not valid Unicode."))
            return
        await self._send_frame(wire.REQUEST, number, body)

    async def _send_frame(self, kind: int, id: int, body: bytes = b"") -> None:
        if (channel := self._channel) is not None:
            with contextlib.suppress(ConnectionError):  # the reader notices and dials again
                await channel.send(kind, id, body)

    def _cancel(self, pending: WaitingCall[Any]) -> None:
        for number, known in list(self._pending.items()):
            if known is pending:
                del self._pending[number]
                if pending.is_sent:
                    wire.spawn(self._loop, self._send_frame(wire.CANCEL, number))

    async def _run(self) -> None:
        """Keep the connection, until it is closed or the server refuses it."""
        pause_seconds, lost_at = FIRST_PAUSE_SECONDS, self._loop.time()
        while not self._is_closed:
            try:
                await self._serve_connection()
            except RejectedByServer as exc:
                self._lose(f"it refuses the connection: {exc}", is_final=True)
                return
            except (ConnectionError, OSError, BrokenFrame) as exc:
                self._lose(describe(exc))
            except Exception as exc:  # a bug of ours; the calls must end all the same
                self._lose(f"{type(exc).__name__}: {exc}", is_final=True)
                raise
            if self._was_connected:
                pause_seconds, self._was_connected = FIRST_PAUSE_SECONDS, False
                lost_at = self._loop.time()
            self._fail_expired(self._loop.time() - lost_at)
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)

    async def _serve_connection(self) -> None:
        """Dial, and receive until the connection is lost. Raises what ended it."""
        settings = self.settings
        reader, writer = await dial(settings.address, settings.ca_file, DIAL_SECONDS)
        channel = WorkspaceChannel(reader, writer)
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                welcome = await greet(channel, self.greeting, settings.token)
        except TimeoutError:
            channel.close()
            raise ConnectionError(f"no handshake within {DIAL_SECONDS:.0f} s") from None
        except BaseException:
            channel.close()
            raise
        try:
            self._begin(channel, welcome)
            while True:
                self._receive(await channel.receive())
        finally:
            self._channel = None
            self._connected.clear()
            channel.close()

    def _begin(self, channel: WorkspaceChannel, welcome: Welcome) -> None:
        is_back = self.welcome is not None
        self.welcome = self.welcome or welcome
        self._channel, self._problem, self._was_connected = channel, "", True
        channel.keep_alive()
        if is_back and not welcome.is_known:
            self._fail_forgotten()
        self._connected.set()
        sent = [number for number, pending in self._pending.items() if pending.is_sent]
        self._settled.clear()
        wire.spawn(self._loop, self._send_frame(wire.WAITING, 0, wire.encode_body(sent)))
        for number in sent:
            self._pending[number].is_sent = False
            wire.spawn(self._loop, self._send_call(number, self._pending[number]))
        for sink in self._sinks.values():
            sink.resume()
        if is_back:
            self._report(f"{self.name} is connected again")

    def _fail_forgotten(self) -> None:
        """The server has none of our calls any more: what changes something must not be sent again."""
        for number, pending in list(self._pending.items()):
            if pending.is_sent and not pending.call.operation.reads_only:
                del self._pending[number]
                text = f"{self.name} was restarted during this call. What it has done of it is not known."
                self._settle(pending, WorkspaceUnavailable(text))

    def _fail_expired(self, lost_seconds: float) -> None:
        """After its grace period the server has ended our commands and forgotten our calls, if it still runs."""
        if self.welcome is None or lost_seconds < self.welcome.grace_seconds + wire.SILENCE_SECONDS:
            return
        for number, pending in list(self._pending.items()):
            if pending.is_sent:
                del self._pending[number]
                self._settle(pending, self._unavailable(f"{self._problem}. What it has done of the call is not known"))

    def _lose(self, problem: str, *, is_final: bool = False) -> None:
        if self._was_connected and not self._is_closed:
            self._report(f"{self.name} does not answer: {problem}")
        self._problem = problem
        if is_final:
            for pending in list(self._pending.values()):
                self._settle(pending, self._unavailable(problem))
            self._pending.clear()

    def _receive(self, frame: wire.WireFrame) -> None:
        if frame.kind == wire.OUTPUT:
            if len(frame.body) < wire.OFFSET.size:
                raise BrokenFrame("output without a position")
            stream, offset = wire.OFFSET.unpack_from(frame.body)
            if (sink := self._sinks.get(frame.id)) is not None:
                sink.take_output(stream, offset, frame.body[wire.OFFSET.size :])
            return
        if frame.kind not in (wire.REPLY, wire.FAILURE):
            raise BrokenFrame(f"a message of the kind {frame.kind} was not expected")
        pending = self._pending.pop(frame.id, None)
        if pending is None:
            return  # it was cancelled
        self._settled.append(frame.id)
        if frame.kind == wire.FAILURE:
            self._settle(pending, to_exception(wire.decode_body(frame.body, CallFailure)))
            return
        try:
            result = wire.decode_body(frame.body, pending.call.operation.result)
        except BrokenFrame as exc:
            self._settle(pending, self._unavailable(str(exc)))
            raise
        with contextlib.suppress(concurrent.futures.InvalidStateError):  # cancelled at this moment
            pending.done.set_result(result)

    @staticmethod
    def _settle(pending: WaitingCall[Any], exc: Exception) -> None:
        if not pending.done.done():
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                pending.done.set_exception(exc)

    def _shut_down(self) -> None:
        self._lose("the session has ended", is_final=True)
        if self._runner is not None:
            self._runner.cancel()

    def _unavailable(self, problem: str) -> WorkspaceUnavailable:
        return WorkspaceUnavailable(f"{self.name} does not answer: {problem}")


def to_exception(failure: CallFailure) -> Exception:
    if failure.kind == "system":
        return OSError(failure.errno, failure.text)
    return NotWritten(failure.text) if failure.kind == "not_written" else ToolError(failure.text)


_starting = threading.Lock()


@functools.cache
def _start_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="parley-workspace", daemon=True).start()
    return loop


def get_loop() -> asyncio.AbstractEventLoop:
    """The running loop; started at the first use. One thread for the process, as in parley/_threads.py."""
    with _starting:
        return _start_loop()


os.register_at_fork(after_in_child=_start_loop.cache_clear)  # a child process does not have the thread
