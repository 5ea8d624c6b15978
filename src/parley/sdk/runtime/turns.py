"""The turn of a prompt.

    turn = await client.ask("Hello")
    async for message in turn: ...          its own messages, the result last
    turn.result

Every prompt of `ask` and `send` has an id, and engines tell what becomes of it: queued, started,
completed or cancelled. Between `started` and the `result` the messages are the turn's. Prompts
that join a running turn share what follows, and its result. For engines that tell no lives, a
turn begins with the next `init` line and belongs to the prompt that has waited longest.

What belongs to no such turn (the notice of a background task, the answer to a plain
`client.query()`) is for `receive_messages()`.
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
    """Messages as they come. It holds no scope: whoever stops reading just stops."""

    def __init__(self) -> None:
        self._held: deque[ours.Message] = deque()
        self._changed: Event | None = None
        self._finished = False
        self._error: Callable[[], BaseException | None] = lambda: None

    def put(self, message: ours.Message) -> None:
        self._held.append(message)
        self._wake()

    def finish(self, flaw: Callable[[], BaseException | None] = lambda: None) -> None:
        """Mark the turn as finished; `flaw` creates the exception to raise, if any."""
        if not self._finished:
            self._finished, self._error = True, flaw
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
                flaw, self._error = self._error(), lambda: None
                if flaw is not None:
                    raise flaw
                raise StopAsyncIteration
            await self._more()
        return self._held.popleft()

    async def aclose(self) -> None:
        """No effect; for programs that close iterators."""


def is_end(message: ours.Message) -> bool:
    """Whether a turn is over with it: a result, also one that cannot be read."""
    return isinstance(message, ours.ResultMessage) or (
        isinstance(message, ours.Unreadable) and message.type == "result"
    )


class Turn(MessageStream):
    """A prompt and the messages of its turn."""

    def __init__(self, uuid: str, parsed: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        self.uuid = uuid
        self.state: State = "sent"
        self.result: ours.ResultMessage | None = None
        self._parsed = parsed

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

        Raises MessageParseError if there is none, or it does not fit.
        """
        from parley.sdk.structured import parse

        return parse(await self.finish_up(), self._parsed)

    def __await__(self) -> Generator[Any, None, ours.ResultMessage | None]:
        return self.finish_up().__await__()


class ResponseStream(MessageStream):
    """The messages of another stream up to the next result. It takes no more than it yields."""

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
    """Sorts the messages of one engine."""

    def __init__(self) -> None:
        self._waiting: dict[str, Turn] = {}
        self._running: list[Turn] = []
        self._ended: set[str] = set()
        """Prompts whose turns are over, and whose lives end a line later."""
        self.has_lifecycle = False
        """Whether the engine tells what becomes of prompts."""

    def add(self, turn: Turn) -> None:
        """Raises ValueError for the id of one that waits: its own turn would never end."""
        if turn.uuid in self._waiting:
            raise ValueError(f"a prompt with the uuid {turn.uuid!r} still waits")
        self._waiting[turn.uuid] = turn

    def drop(self, turn: Turn) -> None:
        """Its prompt was never sent."""
        self._waiting.pop(turn.uuid, None)

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting or self._running)

    def route(self, message: base.Message) -> Sequence[Turn] | None:
        """The turns a message belongs to, none of which may be left to read it; None if it belongs to no turn."""
        match message:
            case CommandLifecycle(command_uuid=uuid, state=state):
                return self._update(uuid, state)
            case Result() | base.Refused(kind="result"):
                return self._end(message)
            case Init() | Assistant() if not self._running and not self.has_lifecycle and self._waiting:
                self._begin(next(iter(self._waiting)))
        return list(self._running) or None

    def settle(self, turns: Sequence[Turn], result: ours.Message) -> None:
        """These turns have ended with this result, which they have been given; it may be one that nobody can read."""
        for turn in turns:
            turn.reached("completed")
            if isinstance(result, ours.ResultMessage):
                turn.result = result
                turn.finish()
            else:
                turn.finish(lambda: MessageParseError(f"the result of the turn cannot be read: {result}"))
            if self.has_lifecycle:
                self._ended.add(turn.uuid)

    def finish(self, flaw: Callable[[], BaseException | None]) -> None:
        """The engine is gone."""
        for turn in (*self._running, *self._waiting.values()):
            turn.finish(flaw)
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
