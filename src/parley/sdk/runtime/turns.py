"""Streams of messages, and the turn of a prompt.

    turn = await client.ask("Hello")
    async for message in turn: ...          its own messages, the result last
    turn.result

Every prompt of `ask` has an id, and the engine reports its state: queued, started, completed or
cancelled. The messages from `started` to the `result` belong to the turn. A prompt that joins a running
turn receives the messages from then on and shares the result. If an engine does not report states, a
turn starts with the next `init` message and belongs to the oldest waiting prompt.

Messages that belong to no such turn (a notification of a background task, the reply to a plain
`client.query()`) go to `receive_messages()`.

    MessageBuffer   messages that the router has put there for one reader
    MessageStream   what a program reads from a buffer
    Turn            the stream of one turn
    TurnRecord      the same turn from the inside: the router writes its messages, state and result
    TurnTracker     assigns messages to turns
    TurnQueue       holds prompts back until the turn before has ended

See also: `message_router.py` for what goes into which buffer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal

from parley.protocol import base
from parley.protocol.messages.conversation import Assistant
from parley.protocol.messages.notices import CommandLifecycle
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import Init
from parley.sdk.errors import ClaudeSDKError, CLIConnectionError, MessageParseError, ResultError
from parley.sdk.runtime.background import Event, is_cancellation, make_event
from parley.sdk.types import messages as ours
from parley.sdk.types.generic import OutputT

if TYPE_CHECKING:
    pass

MakeError = Callable[[], BaseException | None]
"""Creates the exception that ends a stream; None for a regular end."""


class MessageBuffer:
    """Messages in order of arrival, written by the router and read by one stream."""

    def __init__(self) -> None:
        self._held: deque[ours.Message] = deque()
        self._changed: Event | None = None
        self.is_finished = False
        self._make_error: MakeError = lambda: None

    def put(self, message: ours.Message) -> None:
        self._held.append(message)
        self.wake()

    def finish(self, make_error: MakeError = lambda: None) -> None:
        """Mark the end. After the last message, the reader gets the exception that `make_error` creates, if any."""
        if not self.is_finished:
            self.is_finished, self._make_error = True, make_error
            self.wake()

    def wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def wait_for_change(self) -> None:
        if self._changed is None:
            self._changed = make_event()
        await self._changed.wait()

    async def take(self) -> ours.Message:
        """Wait for the next message. Raises StopAsyncIteration at the end, or once the exception that ended it."""
        while not self._held:
            if self.is_finished:
                error, self._make_error = self._make_error(), lambda: None
                raise error or StopAsyncIteration
            await self.wait_for_change()
        return self._held.popleft()


class MessageStream(AsyncIterator[ours.Message]):
    """Messages in order of arrival. It needs no cleanup: a reader can stop at any time and continue later."""

    def __init__(self, buffer: MessageBuffer) -> None:
        self._buffer = buffer

    def __aiter__(self) -> MessageStream:
        return self

    async def __anext__(self) -> ours.Message:
        return await self._buffer.take()

    async def aclose(self) -> None:
        """No effect; for programs that close iterators."""


class ResponseStream(MessageStream):
    """The messages of another stream up to the next result. It consumes only what it yields."""

    def __init__(self, buffer: MessageBuffer) -> None:
        super().__init__(buffer)
        self._has_ended = False

    async def __anext__(self) -> ours.Message:
        if self._has_ended:
            raise StopAsyncIteration
        message = await super().__anext__()
        self._has_ended = is_end(message)
        return message


def is_end(message: ours.Message) -> bool:
    """Whether the message ends a turn: a result, even an unreadable one."""
    return isinstance(message, ours.ResultMessage) or (
        isinstance(message, ours.Unreadable) and message.type == "result"
    )


State = Literal["sent", "queued", "started", "completed", "cancelled"]
"""How far a prompt is: sent to the engine, waiting for its turn, running, answered, or withdrawn."""
ORDER = ("sent", "queued", "started", "completed", "cancelled")


class TurnRecord(MessageBuffer):
    """The messages, state and result of a turn, as the router writes them."""

    def __init__(self, uuid: str, parser: Callable[[Any], Any] | None = None, deps: Any = None) -> None:
        super().__init__()
        self.uuid = uuid
        self.deps = deps
        """For the `RunContext` of callbacks."""
        self.state: State = "sent"
        self.result: ours.ResultMessage | None = None
        self.is_read = False
        """Whether a reader has had all messages."""
        self.parser = parser
        self.stop: Callable[[], None] = do_nothing
        """Interrupts the turn, or withdraws its prompt, because its reader was cancelled. Never waits."""

    def reach(self, state: State) -> None:
        """Advance the state; it never goes back."""
        if ORDER.index(state) > ORDER.index(self.state):
            self.state = state
            self.wake()

    def cancel(self) -> None:
        self.reach("cancelled")
        self.finish()

    def finish(self, make_error: MakeError = lambda: None) -> None:
        super().finish(make_error)
        self.stop = do_nothing  # it refers to this record, which the garbage collector would have to find


def do_nothing() -> None:
    """Stop a turn that has ended."""


class Turn(MessageStream, Generic[OutputT]):
    """A prompt and the messages of its turn, from `Client.ask`.

        turn = await client.ask("What is in this folder?")
        print(await turn.text())

    Iterate over a turn to get its messages, the result last; or use one of the shortcuts, which read
    the turn to its end. A failed turn (an API error, a limit, an interrupt) raises ResultError in every
    shortcut. Pass `check=False` to get what there is instead. Iterating raises nothing for a failed
    turn: its result is one of the messages. Messages are not kept: to iterate again after the end raises RuntimeError,
    but the shortcuts still work.

    Cancelling a reader interrupts the turn: `task.cancel()`, `asyncio.timeout`, a cancel scope of trio, or closing
    `text_stream()`. What the model has said so far stays in the conversation and is paid for; the next prompt runs at
    once. To stop waiting without stopping the turn, wait for a task of its own with `asyncio.shield`.
    """

    def __init__(self, record: TurnRecord) -> None:
        super().__init__(record)
        self._record = record

    def __aiter__(self) -> Turn[OutputT]:
        if self._record.is_read:
            raise RuntimeError("the messages of this turn were already read; keep them in a list to use them again")
        return self

    async def __anext__(self) -> ours.Message:
        try:
            return await self._record.take()
        except StopAsyncIteration:
            self._record.is_read = True
            raise
        except BaseException as exc:
            if is_cancellation(exc):
                self._record.stop()
            raise

    @property
    def uuid(self) -> str:
        """The id of the prompt."""
        return self._record.uuid

    @property
    def state(self) -> State:
        """How far the prompt is. `queued` until its turn starts, `cancelled` if it was withdrawn."""
        return self._record.state

    @property
    def result(self) -> ours.ResultMessage | None:
        """The result; None while the turn runs, and for a prompt that was withdrawn."""
        return self._record.result

    async def until(self, state: State) -> State:
        """Wait for this state or a later one; returns the current state. It reads no messages."""
        record = self._record
        while ORDER.index(record.state) < ORDER.index(state) and not record.is_finished:
            await record.wait_for_change()
        return record.state

    async def wait(self, *, check: bool = True) -> ours.ResultMessage:
        """Read the turn to its end and return the result. `await turn` is the same.

        Raises ResultError if the turn failed, unless `check` is False, and if the prompt was withdrawn;
        CLIConnectionError if the client was closed, or the engine exited, before the turn ended.
        """
        while await anext(self, None) is not None:
            pass
        result = self.result
        if result is None:
            if self.state == "cancelled":
                raise ResultError("the prompt was withdrawn before it was answered")
            raise CLIConnectionError("the client was closed, or the engine exited, before the turn ended")
        if check and result.is_error:
            raise ResultError.from_message(result)
        return result

    def __await__(self) -> Generator[Any, None, ours.ResultMessage]:
        return self.wait().__await__()

    async def text(self, *, check: bool = True) -> str:
        """Read the turn to its end and return the answer as text.

        Raises ResultError if the turn failed, unless `check` is False.
        """
        return (await self.wait(check=check)).result or ""

    async def output(self, *, check: bool = True) -> OutputT:
        """Read the turn to its end and return the structured output, as `Options.output_type` if that is set.

        Raises ResultError if the turn failed, unless `check` is False; MessageParseError if the output is missing
        or does not match the type.
        """
        from parley.sdk.schema import parse_output

        found: OutputT = parse_output(await self.wait(check=check), self._record.parser)
        return found

    async def text_stream(self, *, check: bool = True) -> AsyncGenerator[str, None]:
        """Yield the text of the answer while the model writes it.

            async for text in turn.text_stream():
                print(text, end="", flush=True)

        With `Options(include_partial_messages=True)` the pieces arrive as the model writes them; without it, one
        text block at a time. Text of subagents is left out. At the end, raises ResultError if the turn failed,
        unless `check` is False.
        """
        streamed = False
        try:
            async for message in self:
                if isinstance(message, ours.StreamEvent) and message.parent_tool_use_id is None:
                    if piece := text_delta(message.event):
                        streamed = True
                        yield piece
                elif isinstance(message, ours.AssistantMessage) and message.parent_tool_use_id is None and message.text:
                    if not streamed and message.error is None:
                        yield message.text
                    streamed = False
        except GeneratorExit:
            self._record.stop()
            raise
        await self.wait(check=check)


def return_error(error: Exception) -> Exception:
    return error


def text_delta(event: base.Json) -> str:
    """The text that an event of the model's stream adds; empty if it adds none."""
    delta = event.get("delta")
    text = delta.get("text") if isinstance(delta, dict) and event.get("type") == "content_block_delta" else None
    return text if isinstance(text, str) else ""


class TurnTracker:
    """Assigns the messages of one engine to turns."""

    def __init__(self) -> None:
        self._waiting: dict[str, TurnRecord] = {}
        self._running: list[TurnRecord] = []
        self._ended: set[str] = set()
        """Prompts whose turn has ended, but whose `completed` message has not arrived yet."""
        self.has_lifecycle = False
        """Whether the engine reports the state of prompts."""

    def add(self, turn: TurnRecord) -> None:
        """Raises ValueError if a prompt with this id is waiting, because one of the two turns would never end."""
        if self.is_waiting(turn.uuid):
            raise ValueError(f"a prompt with uuid {turn.uuid!r} is still waiting; use another uuid")
        self._waiting[turn.uuid] = turn

    def is_waiting(self, uuid: str) -> bool:
        return uuid in self._waiting

    def is_shared(self, turn: TurnRecord) -> bool:
        """Whether another prompt has joined the turn."""
        return len(self._running) > 1 and turn in self._running

    def drop(self, turn: TurnRecord) -> None:
        """Remove a turn whose prompt could not be sent."""
        self._waiting.pop(turn.uuid, None)

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting or self._running)

    def list_open(self) -> list[TurnRecord]:
        """The turns that have not ended: those that run, then those that wait."""
        return [*self._running, *self._waiting.values()]

    @property
    def running(self) -> TurnRecord | None:
        """The turn of the last prompt that has started."""
        return self._running[-1] if self._running else None

    def route(self, message: base.Message) -> Sequence[TurnRecord] | None:
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

    def settle(self, turns: Sequence[TurnRecord], result: ours.Message) -> None:
        """End turns with their result, after it was put into their streams. The result may be unreadable."""
        for turn in turns:
            turn.reach("completed")
            if isinstance(result, ours.ResultMessage):
                turn.result = result
                turn.finish()
            else:
                turn.finish(lambda: MessageParseError(f"the turn's result is unreadable: {result}"))
            if self.has_lifecycle:
                self._ended.add(turn.uuid)

    def finish(self, make_error: MakeError) -> None:
        """End all turns after the engine has exited."""
        for turn in (*self._running, *self._waiting.values()):
            turn.finish(make_error)
        self._running.clear()
        self._waiting.clear()

    def _update(self, uuid: str, state: str) -> Sequence[TurnRecord] | None:
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
            turn.cancel()
        elif state == "queued":
            turn.reach("queued")
        return [turn]

    def _begin(self, uuid: str) -> None:
        turn = self._waiting.pop(uuid, None)
        if turn is not None:
            turn.reach("started")
            self._running.append(turn)

    def _end(self, result: base.Message) -> Sequence[TurnRecord] | None:
        if isinstance(result, Result):
            named = result.user_message_uuids if isinstance(result.user_message_uuids, list) else []
            for uuid in (*named, result.user_message_uuid):
                if isinstance(uuid, str):
                    self._begin(uuid)
        if not self._running and not self.has_lifecycle and self._waiting:
            self._begin(next(iter(self._waiting)))
        ended, self._running = self._running, []
        return ended or None


class TurnQueue:
    """Holds prompts back until the turn before has ended.

    The engine joins prompts that wait at the same time into one turn. A prompt with a turn of its own is therefore
    sent when no other prompt of the client is open.
    """

    def __init__(self, turns: TurnTracker) -> None:
        self._turns = turns
        self._held: deque[tuple[TurnRecord, Callable[[], None]]] = deque()

    @property
    def is_empty(self) -> bool:
        return not self._held

    def add(self, turn: TurnRecord, send: Callable[[], None]) -> None:
        """Hold a prompt. `send_next` calls `send` for it. Raises ValueError for the uuid of another waiting prompt."""
        if self._turns.is_waiting(turn.uuid) or any(held.uuid == turn.uuid for held, _ in self._held):
            raise ValueError(f"a prompt with uuid {turn.uuid!r} is still waiting; use another uuid")
        turn.reach("queued")
        self._held.append((turn, send))

    def send_next(self) -> None:
        """Send the next prompt; one that cannot be sent ends with the error, and the one after it is sent."""
        while self._held:
            turn, send = self._held.popleft()
            try:
                self._turns.add(turn)
                send()
            except (ClaudeSDKError, ValueError) as exc:
                self._turns.drop(turn)
                turn.finish(partial(return_error, exc))
            else:
                return

    def withdraw(self, uuid: str | None = None) -> list[str]:
        """Cancel the prompt with this uuid, or all of them. Returns the uuids of those that were held."""
        found = [entry for entry in self._held if uuid in (None, entry[0].uuid)]
        for entry in found:
            self._held.remove(entry)
            entry[0].cancel()
        return [turn.uuid for turn, _ in found]

    def uuids(self) -> list[str]:
        return [turn.uuid for turn, _ in self._held]

    def finish(self, make_error: MakeError) -> None:
        """End all prompts after the engine has exited."""
        while self._held:
            self._held.popleft()[0].finish(make_error)
