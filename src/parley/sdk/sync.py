"""The client without `async`, for scripts and threads.

    print(run_sync("What is 2 + 2?").text)                          (run.py)

    with SyncClient(Options(model="sonnet")) as client:
        print(client.run("What is in this folder?").text)
        for message in client.ask("And in its parent?"):
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
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from parley.protocol.base import Json
from parley.protocol.messages.requests import Request
from parley.sdk.client import NOT_CONNECTED, Client, Priority
from parley.sdk.errors import ClaudeSDKError, NotConnected
from parley.sdk.options import Options
from parley.sdk.query import named_only
from parley.sdk.runtime.prompts import Prompt
from parley.sdk.runtime.query_stream import QueryStream
from parley.sdk.runtime.transport import Transport, Wire
from parley.sdk.runtime.turns import State, Turn
from parley.sdk.types import messages as ours
from parley.sdk.types.generic import OutputT
from parley.sdk.types.messages import RunResult

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
        except ClaudeSDKError as exc:
            raise exc.with_traceback(None) from exc.__cause__  # the frames of the loop say nothing about the program
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        with suppress(RuntimeError):  # the loop is already closed
            self._loop.call_soon_threadsafe(self._stopped.set)

    def close(self) -> None:
        self.stop()
        self._thread.join()

    def __enter__(self) -> LoopThread:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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
    """Messages in order of arrival."""

    def __init__(self, loop: LoopThread, stream: AsyncIterator[ours.Message]) -> None:
        self._loop = loop
        self._stream = stream

    def __iter__(self) -> SyncStream:
        aiter(self._stream)  # raises if it was read to its end
        return self

    def __next__(self) -> ours.Message:
        message = self._loop.run(next_item(self._stream))
        if message is None:
            raise StopIteration
        return message


class SyncTurn(SyncStream, Generic[OutputT]):
    """A prompt and the messages of its turn: `Turn` without async."""

    def __init__(self, loop: LoopThread, turn: Turn[OutputT]) -> None:
        super().__init__(loop, turn)
        self._turn = turn

    @property
    def uuid(self) -> str:
        """The id of the prompt."""
        return self._turn.uuid

    @property
    def state(self) -> State:
        """How far the prompt is."""
        return self._turn.state

    @property
    def result(self) -> ours.ResultMessage | None:
        """The result; None while the turn runs, and for a prompt that was withdrawn."""
        return self._turn.result

    def until(self, state: State) -> State:
        """Wait for this state or a later one; returns the current state."""
        return self._loop.run(self._turn.until(state))

    def wait(self, *, check: bool = True) -> ours.ResultMessage:
        """Read the turn to its end and return the result. Raises ResultError if it failed, unless `check` is False."""
        return self._loop.run(self._turn.wait(check=check))

    def text(self, *, check: bool = True) -> str:
        """Read the turn to its end and return the answer. Raises ResultError if it failed, unless `check` is False."""
        return self._loop.run(self._turn.text(check=check))

    def output(self, *, check: bool = True) -> OutputT:
        """Read the turn to its end and return the structured output.

        Raises ResultError if the turn failed, unless `check` is False; MessageParseError if the output does not match.
        """
        return self._loop.run(self._turn.output(check=check))

    def text_stream(self, *, check: bool = True) -> Iterator[str]:
        """Yield the text of the answer while the model writes it, as `Turn.text_stream` does."""
        stream = self._turn.text_stream(check=check)
        while (text := self._loop.run(next_item(stream))) is not None:
            yield text


async def next_item(stream: AsyncIterator[T]) -> T | None:
    return await anext(stream, None)


class SyncClient(Generic[OutputT]):
    """A conversation with an engine: `Client` without async.

        with SyncClient(Options(model="sonnet")) as client:
            print(client.run("What is in this folder?").text)

    It has every control request of `Client` too: `interrupt`, `set_model`, `get_context_usage` and the rest.
    """

    def __init__(self, options: Options[OutputT] | None = None, transport: Transport | Wire | None = None) -> None:
        """Raises TypeError or ValueError for invalid options."""
        self._client: Client[OutputT] = Client(options, transport)
        self._loop: LoopThread | None = None

    def connect(self) -> None:
        """Start the engine; `with` does this. Raises CLIConnectionError, ProcessError, ControlError."""
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

    def __enter__(self) -> SyncClient[OutputT]:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    if not TYPE_CHECKING:  # a type checker reports it

        async def __aenter__(self):
            raise TypeError("a SyncClient needs `with`; in an async program, use `async with Client(...)`")

        __aexit__ = __aenter__

    def ask(
        self,
        prompt: Prompt,
        *,
        uuid: str | None = None,
        priority: Priority | None = None,
        join: bool = False,
        deps: Any = None,
    ) -> SyncTurn[OutputT]:
        """Send a prompt and return its turn, without waiting for the answer. See `Client.ask`."""
        loop = self._connected_loop()
        work = self._client.ask(prompt, uuid=uuid, priority=priority, join=join, deps=deps)
        return SyncTurn(loop, loop.run(work))

    send = ask
    """The same as `ask`. Prefer `ask`."""

    def run(self, prompt: Prompt, *, check: bool = True, deps: Any = None) -> RunResult[OutputT]:
        """Send a prompt, wait for the end of its turn and return the result.

        Raises ResultError if the turn failed, unless `check` is False. See `Client.run`.
        """
        return self._connected_loop().run(self._client.run(prompt, check=check, deps=deps))

    def cancel(self, turn: SyncTurn[Any]) -> bool:
        """Withdraw a waiting prompt. Returns whether it was still waiting."""
        return self._connected_loop().run(self._client.cancel(turn._turn))

    def query(self, prompt: str, session_id: str = "default") -> None:
        """Send a prompt, as in the official SDK; `receive_response()` yields the reply."""
        self._connected_loop().run(self._client.query(prompt, session_id))

    def receive_messages(self) -> SyncStream:
        """All messages that do not belong to an `ask`, until the session ends."""
        return SyncStream(self._connected_loop(), self._client.receive_messages())

    def receive_response(self) -> SyncStream:
        """The same as `receive_messages()`, up to and including the next result."""
        return SyncStream(self._connected_loop(), self._client.receive_response())

    def request(self, request: Request, timeout_seconds: float | None = None) -> Any:
        """Send any control request; returns the reply's payload."""
        return self._connected_loop().run(self._client.request(request, timeout_seconds))

    @property
    def session_id(self) -> str | None:
        """The id of the session. Known once a turn has started."""
        return self._client.session_id

    @property
    def pid(self) -> int | None:
        """The engine's process id, if it has its own process."""
        return self._client.pid

    @property
    def server_info(self) -> Json | None:
        """The engine's reply to `initialize`; None before `connect`."""
        return self._client.server_info

    def __getattr__(self, name: str) -> Any:
        """Control requests: `interrupt`, `set_model`, `get_context_usage` and the rest."""
        method = getattr(Client, name, None)
        if name.startswith("_") or not asyncio.iscoroutinefunction(method):
            raise AttributeError(name)
        return lambda *given, **named: self._connected_loop().run(getattr(self._client, name)(*given, **named))

    def _connected_loop(self) -> LoopThread:
        if self._loop is None:
            if self._client.server_info is not None:
                raise NotConnected("the client was closed")
            raise NotConnected(NOT_CONNECTED.replace("async with ", "with Sync"))
        return self._loop


@named_only
def query_sync(
    *, prompt: str, options: Options[Any] | None = None, transport: Transport | Wire | None = None
) -> Iterator[ours.Message]:
    """Send the prompt and yield all messages: `query` without async.

    Raises ResultError after the last message if the turn failed, ProcessError if the engine fails.
    """
    return run_to_end(QueryStream(prompt, options, transport))


def run_to_end(stream: QueryStream) -> Iterator[ours.Message]:
    loop = LoopThread()
    try:
        yield from SyncStream(loop, stream)
    finally:
        loop.run(stream.aclose())
        loop.close()
