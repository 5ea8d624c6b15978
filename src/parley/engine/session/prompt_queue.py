"""Prompts that wait for their turn.

The first prompt starts a turn as soon as nothing runs. Those that arrive meanwhile join the
running turn at its next model call, if it has one, or else form the next turn together, as
recorded from the original. So do those of the priority `next`, which is the usual one. A
prompt of the priority `now` goes before them and ends the running turn, and one of the
priority `later` goes behind them and joins nothing. Within a priority the order is kept.

A prompt that could not be read waits in the same line, so that results come in the order of
the prompts. The notification of a background task is a turn by itself, and its result says so.
"""

from __future__ import annotations

from asyncio import Event
from collections import deque

from parley.protocol.base import Json, Struct
from parley.protocol.blocks import ToolUse

NOTIFICATION = "task-notification"
"""The origin of a prompt that nobody typed: a background task is over."""


PRIORITIES = {"now": 0, "next": 1, "later": 2}
"""What goes first. A priority that we do not know is the usual one."""
DEFAULT_PRIORITY = PRIORITIES["next"]


class Prompt(Struct, frozen=True, kw_only=True):
    """A prompt that was accepted."""

    content: list[Json]
    uuid: str
    has_client_uuid: bool = False
    """Whether the client gave the uuid; only then its life is reported."""
    expansion: list[Json] | None = None
    """What a slash command stands for: this goes into the conversation, and the content is what was typed."""
    origin: Json | None = None
    priority: int = DEFAULT_PRIORITY
    verbatim: bool = False
    """Whether it means what it says: no command, no file behind an `@`."""
    traceparent: str | None = None
    """The span that its turn belongs to, if the client says one."""
    runs_alone: bool = False
    """Whether it is a turn by itself: a command that no model is asked about."""

    @property
    def is_notification(self) -> bool:
        return self.origin is not None and self.origin.get("kind") == NOTIFICATION


class RejectedPrompt(Struct, frozen=True):
    """A prompt that could not be read. It still gets its result."""

    reason: str
    uuid: str | None = None
    """What its client calls it, if it does: its result says so."""
    priority: int = DEFAULT_PRIORITY


class ResumedTurnItem(Struct, frozen=True, kw_only=True):
    """A turn that an earlier engine left waiting goes on, with the calls that have no result. It goes first."""

    uuid: str
    calls: list[ToolUse]
    priority: int = -1


class PromptQueue:
    def __init__(self) -> None:
        self._waiting: deque[Prompt | RejectedPrompt | ResumedTurnItem] = deque()
        self._arrived = Event()
        self._is_closed = False
        self.abort_next: str | None = None
        """The prompt that an interrupt met before its turn began."""

    def put(self, item: Prompt | RejectedPrompt | ResumedTurnItem) -> None:
        """Put it behind everything that goes before it."""
        ahead = sum(waiting.priority <= item.priority for waiting in self._waiting)
        self._waiting.insert(ahead, item)
        self._arrived.set()

    def put_back(self, prompts: list[Prompt]) -> None:
        """They are the first of their priority again."""
        for prompt in reversed(prompts):
            ahead = sum(waiting.priority < prompt.priority for waiting in self._waiting)
            self._waiting.insert(ahead, prompt)
        self._arrived.set()

    def close(self) -> None:
        """Nothing more will come; what waits is still to be taken."""
        self._is_closed = True
        self._arrived.set()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def list_prompts(self) -> list[Prompt]:
        """The prompts that wait, in their order."""
        return [item for item in self._waiting if isinstance(item, Prompt)]

    def has_turns(self) -> bool:
        """Whether something waits that will run, and not only be refused."""
        return any(not isinstance(item, RejectedPrompt) for item in self._waiting)

    def next_uuid(self) -> str | None:
        """What an interrupt means that comes before the next turn has begun."""
        first = self._waiting[0] if self._waiting else None
        return None if first is None or isinstance(first, RejectedPrompt) else first.uuid

    def next_prompt(self) -> Prompt | None:
        """The prompt that is taken next; None if there is none, or what comes next cannot be read."""
        first = self._waiting[0] if self._waiting else None
        return first if isinstance(first, Prompt) else None

    def is_urgent(self) -> bool:
        """Whether somebody waits who will not wait for the end of the turn."""
        return bool(self._waiting) and self._waiting[0].priority < DEFAULT_PRIORITY

    def remove(self, uuid: str) -> bool:
        """Take a waiting prompt back; False if it does not wait. If it comes again, an old interrupt is not for it."""
        if self.abort_next == uuid:
            self.abort_next = None
        for item in self._waiting:
            if isinstance(item, Prompt) and item.uuid == uuid:
                self._waiting.remove(item)
                return True
        return False

    def __len__(self) -> int:
        return len(self._waiting)

    async def take(self, merge: bool) -> list[Prompt] | RejectedPrompt | ResumedTurnItem | None:
        """What the next turn is about; None when nothing more will come.

        `together`: all prompts of one priority that wait, up to one that stands by itself; else the first.
        """
        while not self._waiting:
            if self._is_closed:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        first = self._waiting.popleft()
        if not isinstance(first, Prompt):
            return first
        if not merge or first.is_notification or first.runs_alone:
            return [first]
        return [first, *self.take_prompts(first.priority)]

    def take_prompts(self, priority: int = DEFAULT_PRIORITY) -> list[Prompt]:
        """The prompts of people that wait at the head of the line, of one priority, without waiting for more."""
        taken: list[Prompt] = []
        while self._waiting:
            first = self._waiting[0]
            if not isinstance(first, Prompt) or first.is_notification or first.runs_alone or first.priority != priority:
                break
            taken.append(first)
            self._waiting.popleft()
        return taken


def join_content(prompts: list[Prompt], separator: str = "\n") -> list[Json]:
    """Several prompts as one content: texts in one block with the joint between them, other blocks in their places."""
    content: list[Json] = []
    for prompt in prompts:
        for at, block in enumerate(prompt.content if prompt.expansion is None else prompt.expansion):
            last = content[-1] if content else None
            if at == 0 and last is not None and last.get("type") == block.get("type") == "text":
                content[-1] = {**last, "text": f"{last['text']}{separator}{block['text']}"}
            else:
                content.append(block)
    return content
