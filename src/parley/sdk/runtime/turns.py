"""The turn of a prompt.

    turn = await client.ask("Hello")
    async for message in turn: ...          its own messages, the result last
    turn.result

Every prompt of `ask` and `send` has an id, and the engine reports its state: queued, started,
completed or cancelled. The messages from `started` to the `result` belong to the turn. A prompt that
joins a running turn receives the messages from then on and shares the result. If an engine does not
report states, a turn starts with the next `init` message and belongs to the oldest waiting prompt.

Messages that belong to no such turn (a notification of a background task, the reply to a plain
`client.query()`) go to `receive_messages()`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from parley.protocol import base
from parley.protocol.messages.conversation import Assistant
from parley.protocol.messages.notices import CommandLifecycle
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import Init
from parley.sdk.errors import MessageParseError
from parley.sdk.types import messages as ours

if TYPE_CHECKING:
    from anyio import Event

State = Literal["sent", "queued", "started", "completed", "cancelled"]
ORDER = ("sent", "queued", "started", "completed", "cancelled")


class MessageStream(AsyncIterator[ours.Message]):
    """Messages in order of arrival. It needs no cleanup: a reader can stop at any time."""

    def __init__(self) -> None:
        self._held: deque[ours.Message] = deque()
        self._changed: Event | None = None
        self._finished = False
        self._error: Callable[[], BaseException | None] = lambda: None

    def put(self, message: ours.Message) -> None:
        self._held.append(message)
        self._wake()

    def finish(self, make_error: Callable[[], BaseException | None] = lambda: None) -> None:
        """Mark the stream as finished; `make_error` creates the exception to raise, if any."""
        if not self._finished:
            self._finished, self._error = True, make_error
            self._wake()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def _more(self) -> None:
        from anyio import Event

        if self._changed is None:
            self._changed = Event()
        await self._changed.wait()

    def __aiter__(self) -> MessageStream:
        return self

    async def __anext__(self) -> ours.Message:
        while not self._held:
            if self._finished:
                error, self._error = self._error(), lambda: None
                if error is not None:
                    raise error
                raise StopAsyncIteration
            await self._more()
        return self._held.popleft()

    async def aclose(self) -> None:
        """No effect; for programs that close iterators."""


def is_end(message: ours.Message) -> bool:
    """Whether the message ends a turn: a result, even an unreadable one."""
    return isinstance(message, ours.ResultMessage) or (
        isinstance(message, ours.Unreadable) and message.type == "result"
    )


class Turn(MessageStream):
    """A prompt and the messages of its turn."""

    def __init__(self, uuid: str, parser: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        self.uuid = uuid
        self.state: State = "sent"
        self.result: ours.ResultMessage | None = None
        self._parser = parser

    def __aiter__(self) -> Turn:
        return self

    def reached(self, state: State) -> None:
        """Advance the state; it never goes back."""
        if ORDER.index(state) > ORDER.index(self.state):
            self.state = state
            self._wake()

    async def until(self, state: State) -> State:
        """Wait for this state or a later one; returns the current state."""
        while ORDER.index(self.state) < ORDER.index(state) and not self._finished:
            await self._more()
        return self.state

    async def finish_up(self) -> ours.ResultMessage | None:
        """Read the turn to its end. Returns the result, or None if the prompt was cancelled."""
        async for _ in self:
            pass
        return self.result

    async def text(self) -> str:
        """Read the turn to its end. Returns the answer as text."""
        result = await self.finish_up()
        return (result.result or "") if result is not None else ""

    async def output(self) -> Any:
        """Read the turn to its end. Returns the structured output, as `Options.output_type` if set.

        Raises MessageParseError if it is missing or does not match the schema.
        """
        from parley.sdk.structured import parse

        return parse(await self.finish_up(), self._parser)

    def __await__(self) -> Generator[Any, None, ours.ResultMessage | None]:
        return self.finish_up().__await__()


class ResponseStream(MessageStream):
    """The messages of another stream up to the next result. It consumes only what it yields."""

    def __init__(self, source: MessageStream) -> None:
        super().__init__()
        self._source = source

    async def __anext__(self) -> ours.Message:
        if self._finished:
            raise StopAsyncIteration
        message = await self._source.__anext__()
        self._finished = is_end(message)
        return message


class TurnTracker:
    """Assigns the messages of one engine to turns."""

    def __init__(self) -> None:
        self._waiting: dict[str, Turn] = {}
        self._running: list[Turn] = []
        self._ended: set[str] = set()
        """Prompts whose turn has ended, but whose `completed` message has not arrived yet."""
        self.has_lifecycle = False
        """Whether the engine reports the state of prompts."""

    def add(self, turn: Turn) -> None:
        """Raises ValueError if a prompt with this id is waiting, because one of the two turns would never end."""
        if turn.uuid in self._waiting:
            raise ValueError(f"a prompt with uuid {turn.uuid!r} is still waiting; use another uuid")
        self._waiting[turn.uuid] = turn

    def drop(self, turn: Turn) -> None:
        """Remove a turn whose prompt could not be sent."""
        self._waiting.pop(turn.uuid, None)

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting or self._running)

    def route(self, message: base.Message) -> Sequence[Turn] | None:
        """Return the turns a message belongs to, or None if it belongs to no turn.

        An empty list means that the message belongs to a turn that has already ended.
        """
        match message:
            case CommandLifecycle(command_uuid=uuid, state=state):
                return self._update(uuid, state)
            case Result() | base.Refused(kind="result"):
                return self._end(message)
            case Init() | Assistant() if not self._running and not self.has_lifecycle and self._waiting:
                self._begin(next(iter(self._waiting)))
        return list(self._running) or None

    def settle(self, turns: Sequence[Turn], result: ours.Message) -> None:
        """End turns with their result, after it was put into their streams. The result may be unreadable."""
        for turn in turns:
            turn.reached("completed")
            if isinstance(result, ours.ResultMessage):
                turn.result = result
                turn.finish()
            else:
                turn.finish(lambda: MessageParseError(f"the turn's result is unreadable: {result}"))
            if self.has_lifecycle:
                self._ended.add(turn.uuid)

    def finish(self, make_error: Callable[[], BaseException | None]) -> None:
        """End all turns after the engine has exited."""
        for turn in (*self._running, *self._waiting.values()):
            turn.finish(make_error)
        self._running.clear()
        self._waiting.clear()

    def _update(self, uuid: str, state: str) -> Sequence[Turn] | None:
        self.has_lifecycle = True
        turn = self._waiting.get(uuid) or next((turn for turn in self._running if turn.uuid == uuid), None)
        if turn is None:
            if uuid not in self._ended:
                return None
            if state in ("completed", "cancelled"):
                self._ended.discard(uuid)
            return []
        if state == "started":
            self._begin(uuid)
        elif state == "cancelled":
            self._waiting.pop(uuid, None)
            turn.reached("cancelled")
            turn.finish()
        elif state == "queued":
            turn.reached("queued")
        return [turn]

    def _begin(self, uuid: str) -> None:
        turn = self._waiting.pop(uuid, None)
        if turn is not None:
            turn.reached("started")
            self._running.append(turn)

    def _end(self, result: base.Message) -> Sequence[Turn] | None:
        if isinstance(result, Result):
            named = result.user_message_uuids if isinstance(result.user_message_uuids, list) else []
            for uuid in (*named, result.user_message_uuid):
                if isinstance(uuid, str):
                    self._begin(uuid)
        if not self._running and not self.has_lifecycle and self._waiting:
            self._begin(next(iter(self._waiting)))
        ended, self._running = self._running, []
        return ended or None
