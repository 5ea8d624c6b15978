"""The queue of prompts.

The first prompt starts a turn as soon as none is running. Prompts that arrive during a turn join it at its next model
call; if there is none, they form the next turn together, as in Claude Code. Priorities:

    now     goes first, and ends the running turn
    next    the default
    later   goes last, and joins no turn

Within a priority the order is kept. An unreadable prompt is queued too, so that results arrive in the order of the
prompts. The notification of a background task is a turn of its own, and its result says so.

See also: `control/handlers/interrupt.py` for what an interrupt does to queued prompts.
"""

from __future__ import annotations

from asyncio import Event
from collections import deque

from parley.protocol.base import Json, Struct
from parley.protocol.blocks import ToolUse

NOTIFICATION = "task-notification"
"""The origin of the prompt that reports the end of a background task."""


PRIORITIES = {"now": 0, "next": 1, "later": 2}
"""Lower goes first. An unknown priority counts as `next`."""
DEFAULT_PRIORITY = PRIORITIES["next"]


class Prompt(Struct, frozen=True, kw_only=True):
    """A prompt that was accepted."""

    content: list[Json]
    uuid: str
    has_client_uuid: bool = False
    """The client gave the uuid, so the states of the prompt are reported."""
    expansion: list[Json] | None = None
    """The expansion of a slash command. It enters the conversation instead of the content that was typed."""
    origin: Json | None = None
    priority: int = DEFAULT_PRIORITY
    verbatim: bool = False
    """Taken literally: no slash command, no `@file`."""
    traceparent: str | None = None
    """The span that its turn belongs to, if the client gives one."""
    runs_alone: bool = False
    """A turn of its own: a command that calls no model."""

    @property
    def is_notification(self) -> bool:
        return self.origin is not None and self.origin.get("kind") == NOTIFICATION


class RejectedPrompt(Struct, frozen=True):
    """An unreadable prompt. It still gets a result."""

    reason: str
    uuid: str | None = None
    """The uuid that the client gave, if any."""
    priority: int = DEFAULT_PRIORITY


class ResumedTurnItem(Struct, frozen=True, kw_only=True):
    """A turn of an earlier engine that continues with its open calls. It goes first."""

    uuid: str
    calls: list[ToolUse]
    priority: int = -1


class PromptQueue:
    def __init__(self) -> None:
        self._waiting: deque[Prompt | RejectedPrompt | ResumedTurnItem] = deque()
        self._arrived = Event()
        self._is_closed = False
        self.abort_next: str | None = None
        """The prompt that an interrupt reached before its turn started."""

    def put(self, item: Prompt | RejectedPrompt | ResumedTurnItem) -> None:
        """Add an item after those of the same or a higher priority."""
        ahead = sum(waiting.priority <= item.priority for waiting in self._waiting)
        self._waiting.insert(ahead, item)
        self._arrived.set()

    def put_back(self, prompts: list[Prompt]) -> None:
        """Make prompts the first of their priority again."""
        for prompt in reversed(prompts):
            ahead = sum(waiting.priority < prompt.priority for waiting in self._waiting)
            self._waiting.insert(ahead, prompt)
        self._arrived.set()

    def close(self) -> None:
        """No more input. Waiting items can still be taken."""
        self._is_closed = True
        self._arrived.set()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def list_prompts(self) -> list[Prompt]:
        """The waiting prompts, in order."""
        return [item for item in self._waiting if isinstance(item, Prompt)]

    def has_turns(self) -> bool:
        """Whether an item waits that will run, and not only be refused."""
        return any(not isinstance(item, RejectedPrompt) for item in self._waiting)

    def next_uuid(self) -> str | None:
        """The prompt that an interrupt is for if no turn is running."""
        first = self._waiting[0] if self._waiting else None
        return None if first is None or isinstance(first, RejectedPrompt) else first.uuid

    def next_prompt(self) -> Prompt | None:
        """The next prompt; None if the queue is empty or the next item is not a prompt."""
        first = self._waiting[0] if self._waiting else None
        return first if isinstance(first, Prompt) else None

    def is_urgent(self) -> bool:
        """Whether an item waits that ends the running turn."""
        return bool(self._waiting) and self._waiting[0].priority < DEFAULT_PRIORITY

    def remove(self, uuid: str) -> bool:
        """Remove a waiting prompt; False if it does not wait. An interrupt for it is forgotten."""
        if self.abort_next == uuid:
            self.abort_next = None
        for item in self._waiting:
            if isinstance(item, Prompt) and item.uuid == uuid:
                self._waiting.remove(item)
                return True
        return False

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait_arrival(self) -> None:
        """Wait until an item arrives, also after the end of the input."""
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()

    async def take(self, merge: bool) -> list[Prompt] | RejectedPrompt | ResumedTurnItem | None:
        """The prompts of the next turn; None at the end of the input.

        With `merge`, all waiting prompts of one priority, up to one that runs alone; otherwise the first.
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
        """The prompts at the head of the queue that have one priority and may be merged."""
        taken: list[Prompt] = []
        while self._waiting:
            first = self._waiting[0]
            if not isinstance(first, Prompt) or first.is_notification or first.runs_alone or first.priority != priority:
                break
            taken.append(first)
            self._waiting.popleft()
        return taken


def join_content(prompts: list[Prompt], separator: str = "\n") -> list[Json]:
    """Several prompts as one content: adjacent texts are joined with the separator, other blocks keep their places."""
    content: list[Json] = []
    for prompt in prompts:
        for at, block in enumerate(prompt.content if prompt.expansion is None else prompt.expansion):
            last = content[-1] if content else None
            if at == 0 and last is not None and last.get("type") == block.get("type") == "text":
                content[-1] = {**last, "text": f"{last['text']}{separator}{block['text']}"}
            else:
                content.append(block)
    return content
