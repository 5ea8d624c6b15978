"""The client for programs without an event loop.

    from parley.sync import Client, query

    for message in query(prompt="What is 2 + 2?"): ...

    with Client(Options(model="sonnet")) as client:
        turn = client.ask("What is in this folder?")
        for message in turn: ...                this turn's messages, the result last
        client.interrupt()
        client.do(lambda c: c.supported_models())       whatever else the async client can do

One thread with a loop of its own does the waiting. Callbacks may be plain functions; they run
in threads of their own, so they may wait as long as they like.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from parley.sdk.client import Client as AsyncClient
from parley.sdk.client import Prompt
from parley.sdk.hooks import HookMatcher
from parley.sdk.messages import Message, ResultMessage
from parley.sdk.options import Options
from parley.sdk.turns import State, Stream
from parley.sdk.turns import Turn as AsyncTurn

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

__all__ = ["Client", "Turn", "query"]

T = TypeVar("T")
CALLBACKS = ("can_use_tool", "on_question", "on_plan", "on_elicitation", "on_user_dialog")


def awaited(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """A callback as the client wants it. What is async already stays as it is."""
    if inspect.iscoroutinefunction(function):
        return function

    async def call(*given: Any) -> Any:
        from anyio import to_thread

        answer = await to_thread.run_sync(partial(function, *given))
        return await answer if inspect.isawaitable(answer) else answer

    return call


def adapted(options: Options | None, callbacks: Mapping[str, Any]) -> Options:
    """The options with their callbacks awaitable. Raises TypeError for a callback that there is none."""
    options = options or Options()
    if strange := sorted(set(callbacks) - {*CALLBACKS, "hooks"}):
        raise TypeError(f"there is no callback {strange[0]!r}; there are {', '.join((*CALLBACKS, 'hooks'))}")
    given = {name: callbacks.get(name) or getattr(options, name) for name in CALLBACKS}
    changed: dict[str, Any] = {name: awaited(function) for name, function in given.items() if function is not None}
    hooks = callbacks.get("hooks") or options.hooks or {}
    return replace(
        options,
        **changed,
        hooks={event: [adapted_matcher(matcher) for matcher in listed] for event, listed in hooks.items()} or None,
    )


def adapted_matcher(matcher: HookMatcher) -> HookMatcher:
    return replace(matcher, hooks=[awaited(hook) for hook in matcher.hooks])


class Client:
    """A conversation, one call after the other. Any thread may use it."""

    def __init__(self, options: Options | None = None, transport: Any = None, **callbacks: Any) -> None:
        """Callbacks may be given here, too; here they may be plain functions for type checkers as well."""
        self._client = AsyncClient(adapted(options, callbacks), transport)
        self._portal: BlockingPortal | None = None
        self._held = ExitStack()

    def connect(self) -> None:
        """Start the engine and shake hands. Raises what the async client raises."""
        if self._portal is not None:
            return
        from anyio.from_thread import start_blocking_portal

        with ExitStack() as held:
            portal = held.enter_context(start_blocking_portal())
            portal.call(self._client.connect)
            held.callback(portal.call, self._client.close)
            self._portal, self._held = portal, held.pop_all()

    def close(self) -> None:
        """End the session; returns when the engine is gone. May be called again."""
        self._portal, held = None, self._held.pop_all()
        held.close()

    def __enter__(self) -> Client:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, flaw: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def do(self, act: Callable[[AsyncClient], Awaitable[T]]) -> T:
        """Whatever the async client can do: `client.do(lambda c: c.get_context_usage())`."""
        return self._wait(partial(act, self._client))

    def ask(self, prompt: Prompt, *, uuid: str | None = None, priority: str | None = None) -> Turn:
        """Say something; the turn that answers it."""
        return Turn(self.do(lambda client: client.ask(prompt, uuid=uuid, priority=priority)), self._wait)

    send = ask

    def query(self, prompt: str) -> None:
        """Say something; receive_response() yields what comes of it."""
        self.do(lambda client: client.query(prompt))

    def receive_response(self) -> Iterator[Message]:
        """The messages up to and with the next result."""
        yield from each(self._client.receive_response(), self._wait)

    def receive_messages(self) -> Iterator[Message]:
        """All that belongs to no `ask`, for as long as the engine speaks."""
        yield from each(self._client.receive_messages(), self._wait)

    def interrupt(self, cancel_queued: bool = False) -> dict[str, Any]:
        return self.do(lambda client: client.interrupt(cancel_queued))

    def cancel(self, turn: Turn) -> bool:
        """Take back a prompt that waits. Whether it did."""
        return self.do(lambda client: client.cancel(turn.inner))

    def set_model(self, model: str | None = None) -> None:
        self.do(lambda client: client.set_model(model))

    def set_permission_mode(self, mode: Any) -> None:
        self.do(lambda client: client.set_permission_mode(mode))

    @property
    def session_id(self) -> str | None:
        return self._client.session_id

    @property
    def server_info(self) -> dict[str, Any] | None:
        return self._client.server_info

    @property
    def pid(self) -> int | None:
        return self._client.pid

    def _wait(self, act: Callable[[], Awaitable[T]]) -> T:
        if self._portal is None:
            from parley.sdk.errors import NotConnected

            raise NotConnected("the client is not connected: call connect() first")
        return self._portal.call(act)


Wait = Callable[[Callable[[], Awaitable[Any]]], Any]


def each(stream: Stream, wait: Wait) -> Iterator[Message]:
    """The messages of a stream, waited for one by one."""
    while True:
        try:
            message: Message = wait(stream.__anext__)
        except StopAsyncIteration:
            return
        yield message


class Turn:
    """One prompt and what came of it."""

    def __init__(self, inner: AsyncTurn, wait: Wait) -> None:
        self.inner = inner
        self._wait = wait

    def __iter__(self) -> Iterator[Message]:
        return each(self.inner, self._wait)

    @property
    def result(self) -> ResultMessage | None:
        return self.inner.result

    @property
    def state(self) -> State:
        return self.inner.state

    def until(self, state: State) -> State:
        """Wait until it is so far, or further; returns where it stands."""
        found: State = self._wait(partial(self.inner.until, state))
        return found

    def finish_up(self) -> ResultMessage | None:
        """Read it to its end. The result; None if the prompt was cancelled."""
        found: ResultMessage | None = self._wait(self.inner.finish_up)
        return found

    def text(self) -> str:
        """Read it to its end. The answer as text."""
        return str(self._wait(self.inner.text))

    def output(self) -> Any:
        """Read it to its end. The structured output, as the `output_type` of the options if there is one."""
        return self._wait(self.inner.output)


def query(*, prompt: str, options: Options | None = None, **callbacks: Any) -> Iterator[Message]:
    """Ask, and yield everything up to the end. Leaving the loop early ends the engine."""
    from anyio.from_thread import start_blocking_portal

    from parley.sdk.query import query as asked

    with start_blocking_portal() as portal:
        found = asked(prompt=prompt, options=adapted(options, callbacks))
        try:
            while True:
                try:
                    message = portal.call(found.__anext__)
                except StopAsyncIteration:
                    return
                yield message
        finally:
            portal.call(found.aclose)
