"""Prompts from the user message to the conversation.

    make(message)             the prompt in a user message
    queue(prompt)             put it into the queue
    append(prompts)           make prompts one message of the conversation
    send_lifecycle(prompt)    report queued, started, completed or cancelled, for prompts whose uuid the client gave

See also: `prompt_queue.py` orders them, `turn/runner.py` takes them, `session.py` receives them.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from parley.engine.context.conversation import Conversation
from parley.engine.context.history import is_nonempty
from parley.engine.session.outbox import Activity, Outbox
from parley.engine.session.prompt_queue import DEFAULT_PRIORITY, PRIORITIES, Prompt, PromptQueue, join_content
from parley.errors import EmptyPrompt, ModelError, SessionError
from parley.models.catalog import CHARS_PER_TOKEN, UNKNOWN_MODEL, ModelInfo, ModelRef
from parley.protocol.base import UNSET, Json, convert
from parley.protocol.blocks import ToolResult, as_json
from parley.protocol.messages.conversation import User
from parley.protocol.messages.dialects import Injected, Queued
from parley.protocol.messages.notices import CommandLifecycle


class PromptIntake:
    def __init__(
        self, conversation: Conversation, outbox: Outbox, prompt_queue: PromptQueue, activity: Activity
    ) -> None:
        self._conversation = conversation
        self._config = conversation.config
        self._journal = conversation.journal
        self._outbox = outbox
        self._queue = prompt_queue
        self._activity = activity
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
        if has_uuid and uuid in known:
            if self._config.options.replay_user_messages:
                self._echo_one(
                    Prompt(content=content, uuid=uuid, has_client_uuid=has_uuid, origin=message.origin or None)
                )
            return None
        known.add(uuid)
        return Prompt(
            content=content,
            uuid=uuid,
            has_client_uuid=has_uuid,
            origin=message.origin or None,
            priority=read_priority(message, self._config.warn),
            verbatim=message.client_composed is True,
            traceparent=message.traceparent or None,
        )

    def add_silent(self, prompt: Prompt) -> None:
        """A prompt that starts no turn. It is appended after the running turn, not between a call and its result."""
        self._silent.append(prompt)

    def queue(self, prompt: Prompt) -> None:
        """Queue a prompt, and report its position if it cannot start yet."""
        self._queue.put(prompt)
        waiting = self.list_queued()
        if prompt in waiting:
            self._outbox.send(Queued(position=waiting.index(prompt) + 1, user_message_uuid=prompt.uuid))

    def append_silent(self) -> None:
        """Append the prompts that start no turn. Called when no turn runs."""
        silent, self._silent = self._silent, []
        if not silent:
            return
        try:
            self._conversation.close_interrupted_calls()
            self.append(silent)
        except SessionError as exc:
            self._config.warn(str(exc))
        for prompt in silent:
            self.send_lifecycle(prompt, "completed")

    def append(self, prompts: list[Prompt]) -> None:
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
            "session_id": self._config.session_id,
            "timestamp": self._outbox.clock.now(),
        }
        self._journal.append_json(json, permissionMode=self._conversation.mode(), promptId=prompts[0].uuid)

    def echo(self, prompts: list[Prompt]) -> None:
        """Send prompts back if the client asks for it."""
        if self._config.options.replay_user_messages:
            for prompt in prompts:
                if not prompt.is_notification:
                    self._echo_one(prompt)

    def _echo_one(self, prompt: Prompt) -> None:
        json = {"type": "user", "message": {"role": "user", "content": transcript_content(prompt.content)}}
        echo: User = convert(json, User)
        self._outbox.send_raw(
            msgspec.structs.replace(
                echo,
                session_id=self._config.session_id,
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
        text = f"Prompt is too long: about {chars // CHARS_PER_TOKEN} tokens, and {model.name} takes {window}"
        raise ModelError(text, kind="prompt_too_long")


def transcript_content(content: list[Json]) -> str | list[Json]:
    """A prompt as the transcript keeps it: one plain text as a string."""
    if len(content) == 1 and set(content[0]) == {"type", "text"} and content[0]["type"] == "text":
        return str(content[0]["text"])
    return content
