"""Prompts that wait for their turn.

The first prompt starts a turn as soon as nothing runs. Those that arrive meanwhile join the
running turn at its next model call, if it has one, or else form the next turn together, as
recorded from the original. A prompt that could
not be read waits in the same line, so that results come in the order of the prompts. The
notification of a background task is a turn by itself, and its result says so.
"""

from __future__ import annotations

from asyncio import Event
from collections import deque

from parley.protocol.base import Json, Struct

NOTIFICATION = "task-notification"
"""The origin of a prompt that nobody typed: a background task is over."""


class Prompt(Struct, frozen=True, kw_only=True):
    """A prompt that was accepted."""

    content: list[Json]
    uuid: str
    named: bool = False
    """Whether the client gave the uuid; only then its life is reported."""
    origin: Json | None = None

    @property
    def is_notification(self) -> bool:
        return self.origin is not None and self.origin.get("kind") == NOTIFICATION


class Rejected(Struct, frozen=True):
    """A prompt that could not be read. It still gets its result."""

    reason: str


class Inbox:
    def __init__(self) -> None:
        self._waiting: deque[Prompt | Rejected] = deque()
        self._news = Event()
        self._closed = False

    def put(self, item: Prompt | Rejected) -> None:
        self._waiting.append(item)
        self._news.set()

    def close(self) -> None:
        """Nothing more will come; what waits is still to be taken."""
        self._closed = True
        self._news.set()

    def waiting(self) -> list[Prompt]:
        """The prompts that wait, in their order."""
        return [item for item in self._waiting if isinstance(item, Prompt)]

    def next_is_prompt(self) -> bool:
        """Whether what is taken next can be read."""
        return bool(self._waiting) and isinstance(self._waiting[0], Prompt)

    def drop(self, uuid: str) -> bool:
        """Take a waiting prompt back; False if it does not wait."""
        for item in self._waiting:
            if isinstance(item, Prompt) and item.uuid == uuid:
                self._waiting.remove(item)
                return True
        return False

    def __len__(self) -> int:
        return len(self._waiting)

    async def take(self, together: bool) -> list[Prompt] | Rejected | None:
        """What the next turn is about; None when nothing more will come.

        `together`: all prompts that wait, up to one that stands by itself; else the first.
        """
        while not self._waiting:
            if self._closed:
                return None
            self._news.clear()
            await self._news.wait()
        first = self._waiting.popleft()
        if isinstance(first, Rejected):
            return first
        if not together or first.is_notification:
            return [first]
        return [first, *self.take_prompts()]

    def take_prompts(self) -> list[Prompt]:
        """The prompts of people that wait at the head of the line, without waiting for more."""
        taken: list[Prompt] = []
        while self._waiting:
            first = self._waiting[0]
            if isinstance(first, Rejected) or first.is_notification:
                break
            taken.append(first)
            self._waiting.popleft()
        return taken


def join(prompts: list[Prompt]) -> list[Json]:
    """Several prompts as one content: texts on lines of one block, other blocks in their places."""
    content: list[Json] = []
    for prompt in prompts:
        for at, block in enumerate(prompt.content):
            last = content[-1] if content else None
            if at == 0 and last is not None and last.get("type") == block.get("type") == "text":
                content[-1] = {**last, "text": f"{last['text']}\n{block['text']}"}
            else:
                content.append(block)
    return content
