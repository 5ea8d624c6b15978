"""Streams of messages: a buffer that the router fills, and the iterators that programs read.

See also: `turns.py` for the stream of one turn, `message_router.py` for what goes into which buffer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable

from parley.sdk.runtime.background import Event, make_event
from parley.sdk.types import messages as ours

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
