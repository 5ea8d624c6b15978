"""Prompts: from the user message through the queue to the conversation.

    make(message)             the prompt in a user message
    queue(prompt)             put it into the queue
    append(prompts)           make prompts one message of the conversation
    send_lifecycle(prompt)    report queued, started, completed or cancelled, for prompts whose uuid the client gave

The first prompt in the queue starts a turn as soon as none is running. Prompts that arrive during a turn join it at its
next model call; if there is none, they form the next turn together, as in Claude Code. Priorities:

    now     goes first, and ends the running turn
    next    the default
    later   goes last, and joins no turn

Within a priority the order is kept. An unreadable prompt is queued too, so that results arrive in the order of the
prompts. The notification of a background task is a turn of its own, and its result says so.

See also: `session.py` receives prompts, `turn/runner.py` takes them, `control/session.py` for what an
interrupt does to queued prompts.
"""

from __future__ import annotations

from asyncio import Event
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from parley.engine.context.history import is_nonempty
from parley.engine.session.config import SessionConfig
from parley.engine.session.journal import Journal
from parley.engine.session.outbox import Activity, Outbox
from parley.errors import EmptyPrompt, ModelError
from parley.models.catalog import CHARS_PER_TOKEN, UNKNOWN_MODEL, ModelInfo, ModelRef
from parley.protocol.base import UNSET, Json, Struct, convert
from parley.protocol.blocks import ToolResult, ToolUse, as_json
from parley.protocol.messages.conversation import User
from parley.protocol.messages.dialects import Injected, Queued
from parley.protocol.messages.notices import CommandLifecycle

NOTIFICATION = "task-notification"
"""The origin of the prompt that reports the end of a background task."""


PRIORITIES = {"now": 0, "next": 1, "later": 2}
"""Lower goes first. An unknown priority counts as `next`."""
DEFAULT_PRIORITY = PRIORITIES["next"]


class Prompt(Struct, frozen=True, kw_only=True):
    """A prompt that was accepted."""

    content: list[Json]
    is_text: bool = True
    """The client sent a text. Blocks are sent back as blocks, also a single one."""
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


class PromptIntake:
    def __init__(
        self,
        config: SessionConfig,
        journal: Journal,
        outbox: Outbox,
        prompt_queue: PromptQueue,
        activity: Activity,
        mode: Callable[[], str],
    ) -> None:
        self._config = config
        self._journal = journal
        self._outbox = outbox
        self._queue = prompt_queue
        self._activity = activity
        self._mode = mode
        self._silent: list[Prompt] = []
        """Prompts that start no turn, until they can be appended."""

    def make(self, message: User) -> Prompt | None:
        """The prompt in a user message; None if it was received before. A duplicate is only echoed."""
        has_uuid = isinstance(message.uuid, str) and message.uuid != ""
        uuid = str(message.uuid) if has_uuid else self._outbox.clock.new_uuid()
        content, known = as_json(message.message.content), self._journal.known_uuids
        if message.pasted_content or message.inline_pastes:
            from parley.engine.session.pastes import add_pastes

            content = add_pastes(content, message.pasted_content, message.inline_pastes, self._config.warn)
        prompt = Prompt(
            content=content,
            is_text=isinstance(message.message.content, str),
            uuid=uuid,
            has_client_uuid=has_uuid,
            origin=message.origin or None,
            priority=read_priority(message, self._config.warn),
            verbatim=message.client_composed is True,
            traceparent=message.traceparent or None,
        )
        if has_uuid and uuid in known:
            if self._config.options.replay_user_messages:
                self._echo_one(prompt)
            return None
        known.add(uuid)
        return prompt

    def add_silent(self, prompt: Prompt) -> None:
        """A prompt that starts no turn. It is appended after the running turn, not between a call and its result."""
        self._silent.append(prompt)

    def queue(self, prompt: Prompt) -> None:
        """Queue a prompt, and report its position if it cannot start yet."""
        self._queue.put(prompt)
        waiting = self.list_queued()
        if prompt in waiting:
            self._outbox.send(Queued(position=waiting.index(prompt) + 1, user_message_uuid=prompt.uuid))

    def wake(self, text: str) -> None:
        """Give the model the text of a hook, in a turn of its own if none runs."""
        origin = {"kind": NOTIFICATION, "producer": "hook"}
        content = [{"type": "text", "text": text}]
        self.queue(Prompt(content=content, uuid=self._outbox.clock.new_uuid(), origin=origin, verbatim=True))

    def take_silent(self) -> list[Prompt]:
        """The prompts that start no turn, for the session to append."""
        silent, self._silent = self._silent, []
        return silent

    def append(self, prompts: list[Prompt], **context: Any) -> None:
        """Make prompts one message of the conversation. Raises SessionError."""
        for prompt in prompts:
            self._config.workspace.files.begin_message(prompt.uuid)
        json: Json = {
            "type": "user",
            "message": {
                "role": "user",
                "content": transcript_content(join_content(prompts, self._config.client.prompt_separator)),
            },
            "parent_tool_use_id": None,
            "uuid": prompts[0].uuid,
            # Each of them is known after a restart.
            **({"user_message_uuids": [prompt.uuid for prompt in prompts]} if len(prompts) > 1 else {}),
            "session_id": self._config.identity.id,
            "timestamp": self._outbox.clock.now(),
        }
        self._journal.append_json(json, permissionMode=self._mode(), promptId=prompts[0].uuid, **context)

    def echo(self, prompts: list[Prompt]) -> None:
        """Send prompts back if the client asks for it."""
        if self._config.options.replay_user_messages:
            for prompt in prompts:
                if not prompt.is_notification:
                    self._echo_one(prompt)

    def _echo_one(self, prompt: Prompt) -> None:
        content = transcript_content(prompt.content) if prompt.is_text else prompt.content
        json = {"type": "user", "message": {"role": "user", "content": content}}
        echo: User = convert(json, User)
        self._outbox.send_raw(
            msgspec.structs.replace(
                echo,
                session_id=self._config.identity.id,
                parent_tool_use_id=None,
                uuid=prompt.uuid,
                timestamp=self._outbox.clock.now(),
                origin=prompt.origin or UNSET,
                isReplay=True,
            )
        )

    def send_lifecycle(self, prompt: Prompt, state: str) -> None:
        """Report the state of a prompt whose uuid the client gave."""
        if prompt.has_client_uuid:
            self._outbox.send(CommandLifecycle(command_uuid=prompt.uuid, state=state))

    def list_cancellable(self) -> list[Prompt]:
        """The prompts that can still be cancelled, in their order."""
        return [*self._queue.list_prompts(), *self._silent]

    def list_queued(self) -> list[Prompt]:
        """The prompts that wait for the turn that runs, or is about to run."""
        waiting = self._queue.list_prompts()
        about_to_run = None if self._activity.is_running else self._queue.next_prompt()
        return [prompt for prompt in waiting if prompt is not about_to_run]

    def cancel(self, prompt: Prompt) -> None:
        """Cancel a waiting prompt. It never ran, so it may be sent again."""
        self._queue.remove(prompt.uuid)
        self._silent = [silent for silent in self._silent if silent.uuid != prompt.uuid]
        self._journal.known_uuids.discard(prompt.uuid)
        self.send_lifecycle(prompt, "cancelled")


def read_priority(message: User, warn: Callable[[str], None]) -> int:
    priority = message.priority
    if priority in (UNSET, None):
        return DEFAULT_PRIORITY
    if not isinstance(priority, str) or priority not in PRIORITIES:
        known = ", ".join(PRIORITIES)
        warn(f"the priority {priority!r:.100} of a prompt is unknown (choose from {known}); using next")
        return DEFAULT_PRIORITY
    return PRIORITIES[priority]


def injected_message(prompts: list[Prompt], separator: str) -> Injected:
    """Reports that prompts joined the running turn."""
    texts = [block["text"] for block in join_content(prompts, separator) if block.get("type") == "text"]
    return Injected(message_count=len(prompts), content_length=sum(map(len, texts)))


def has_tool_results(message: User) -> bool:
    """Whether a message has results of tools that the client runs."""
    content = message.message.content
    return not isinstance(content, str) and any(isinstance(block, ToolResult) for block in content)


def check_not_empty(prompts: list[Prompt]) -> None:
    """A backend would refuse the request, or take it for a wish to go on with the last answer. Raises EmptyPrompt."""
    if not any(is_nonempty(block) for prompt in prompts for block in prompt.content):
        raise EmptyPrompt


def check_size(prompts: list[Prompt], model: ModelRef, known: ModelInfo) -> None:
    """A prompt that no request can hold is refused before it spoils the conversation for good. Raises ModelError."""
    window = known.context_window
    chars = sum(len(block.get("text", "")) for prompt in prompts for block in prompt.content)
    if known is not UNKNOWN_MODEL and chars > window * CHARS_PER_TOKEN:
        text = f"Prompt is too long: about {chars // CHARS_PER_TOKEN} tokens, but {model.name} accepts at most {window}"
        raise ModelError(text, kind="prompt_too_long")


def transcript_content(content: list[Json]) -> str | list[Json]:
    """A prompt as the transcript keeps it: one plain text as a string."""
    if len(content) == 1 and set(content[0]) == {"type", "text"} and content[0]["type"] == "text":
        return str(content[0]["text"])
    return content


class ResumedTurnItem(Struct, frozen=True, kw_only=True):
    """A turn of an earlier engine that continues with its open calls, or with the model. It goes first."""

    uuid: str
    calls: list[ToolUse] = []
    prompt_ids: list[str] = []
    """The prompts that its result is for, if they are known."""
    answer: tuple[str, str | None] | None = None
    """The last text and the stop reason, if only the result is missing."""
    is_given_up: bool = False
    """It was continued too often."""
    priority: int = -1


class Recovery(Struct, frozen=True, kw_only=True):
    """What is to be done before the session is as it was."""

    turn: ResumedTurnItem | None = None
    """The turn that continues when the client is there."""
    lost_tasks: list[Json] = []
    """The records of background tasks without an end: they ended with their engine."""
    undelivered: list[Json] = []
    """The records of ends whose messages may not have reached the client (tasks/manager.py)."""
    unread: list[str] = []
    """The notifications that the model has not read."""
    elicitations: list[Json] = []
    """The questions of MCP servers without an answer. A server ends with its engine, so they are not asked again."""
