"""The client without `async`, for scripts and threads.

    with SyncClient(Options(model="sonnet")) as client:
        for message in client.ask("What is in this folder?"):
            ...

    for message in query_sync(prompt="What is 2 + 2?"): ...

An event loop in a separate thread does the work; callbacks run in that thread. A client can be used from
any thread. Ctrl-C in a `for` stops waiting; the session stays usable.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

from parley.protocol.base import Json
from parley.protocol.messages.requests import Request
from parley.sdk.client import Client
from parley.sdk.errors import NotConnected
from parley.sdk.options import Options
from parley.sdk.query import QueryStream
from parley.sdk.runtime.prompts import Prompt
from parley.sdk.runtime.turns import State, Turn
from parley.sdk.types import messages as ours

T = TypeVar("T")


class LoopThread:
    """An event loop in a separate thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="parley client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._stopped.wait())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop's thread and wait for it. An interrupt here cancels the coroutine.

        Raises RuntimeError if called from a callback: callbacks run in the loop's thread, so this would deadlock.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a callback cannot use the SyncClient that called it: this would deadlock")
        if self._loop.is_closed():
            return run_without_loop(work)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        with suppress(RuntimeError):  # the loop is already closed
            self._loop.call_soon_threadsafe(self._stopped.set)

    def close(self) -> None:
        self.stop()
        self._thread.join()


def run_without_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that does not wait, e.g. to read received messages after close().

    Raises NotConnected if it would have to wait.
    """
    try:
        work.send(None)
    except StopIteration as exc:
        value: T = exc.value
        return value
    finally:
        work.close()
    raise NotConnected("the client is closed")


class SyncStream(Iterator[ours.Message]):
    def __init__(self, loop: LoopThread, stream: AsyncIterator[ours.Message]) -> None:
        self._loop = loop
        self._stream = stream

    def __iter__(self) -> SyncStream:
        return self

    def __next__(self) -> ours.Message:
        message = self._loop.run(next_message(self._stream))
        if message is None:
            raise StopIteration
        return message


class SyncTurn(SyncStream):
    """A prompt and the messages of its turn."""

    def __init__(self, loop: LoopThread, turn: Turn) -> None:
        super().__init__(loop, turn)
        self._turn = turn

    @property
    def uuid(self) -> str:
        return self._turn.uuid

    @property
    def state(self) -> State:
        return self._turn.state

    @property
    def result(self) -> ours.ResultMessage | None:
        return self._turn.result

    def until(self, state: State) -> State:
        return self._loop.run(self._turn.until(state))

    def finish_up(self) -> ours.ResultMessage | None:
        return self._loop.run(self._turn.finish_up())

    def text(self) -> str:
        return self._loop.run(self._turn.text())

    def output(self) -> Any:
        return self._loop.run(self._turn.output())


async def next_message(stream: AsyncIterator[ours.Message]) -> ours.Message | None:
    return await anext(stream, None)


class SyncClient:
    """A conversation with an engine. It has every control request of `Client`."""

    def __init__(self, options: Options | None = None, transport: Any = None) -> None:
        self._client = Client(options, transport)
        self._loop: LoopThread | None = None

    def connect(self) -> None:
        if self._loop is None:
            self._loop = LoopThread()
            weakref.finalize(self, self._loop.stop)
            try:
                self._loop.run(self._client.connect())
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """End the session. Returns when the engine and all its children have exited; may be called again."""
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                loop.run(self._client.close())
            finally:
                loop.close()

    def __enter__(self) -> SyncClient:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, prompt: Prompt, *, uuid: str | None = None, priority: str | None = None) -> SyncTurn:
        loop = self._connected_loop()
        return SyncTurn(loop, loop.run(self._client.ask(prompt, uuid=uuid, priority=priority)))

    send = ask

    def cancel(self, turn: SyncTurn) -> bool:
        return self._connected_loop().run(self._client.cancel(turn._turn))

    def query(self, prompt: str, session_id: str = "default") -> None:
        self._connected_loop().run(self._client.query(prompt, session_id))

    def receive_messages(self) -> SyncStream:
        return SyncStream(self._connected_loop(), self._client.receive_messages())

    def receive_response(self) -> SyncStream:
        return SyncStream(self._connected_loop(), self._client.receive_response())

    def request(self, request: Request, timeout_seconds: float | None = None) -> Any:
        return self._connected_loop().run(self._client.request(request, timeout_seconds))

    @property
    def session_id(self) -> str | None:
        return self._client.session_id

    @property
    def pid(self) -> int | None:
        return self._client.pid

    @property
    def server_info(self) -> Json | None:
        return self._client.server_info

    def __getattr__(self, name: str) -> Any:
        """Control requests: `interrupt`, `set_model`, `get_context_usage` and the rest."""
        method = getattr(Client, name, None)
        if name.startswith("_") or not asyncio.iscoroutinefunction(method):
            raise AttributeError(name)
        return lambda *given, **named: self._connected_loop().run(getattr(self._client, name)(*given, **named))

    def _connected_loop(self) -> LoopThread:
        if self._loop is None:
            raise NotConnected("the client is not connected: call connect() first")
        return self._loop


def query_sync(*, prompt: str, options: Options | None = None, transport: Any = None) -> Iterator[ours.Message]:
    """Send the prompt and yield all messages. Raises ProcessError or ResultError if the engine exits with an error."""
    return run_to_end(QueryStream(prompt, options, transport))


def run_to_end(stream: QueryStream) -> Iterator[ours.Message]:
    loop = LoopThread()
    try:
        yield from SyncStream(loop, stream)
    finally:
        loop.run(stream.aclose())
        loop.close()
