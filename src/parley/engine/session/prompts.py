"""From a user line to the conversation: what becomes of each prompt, told to the one who sent it.

take      a line of the host: known already, silent, or queued
keep      prompts become part of the conversation
report    queued, started, completed or cancelled, by the uuid that the client gave
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from parley.engine.context.history import is_nonempty
from parley.engine.session.prompt_queue import DEFAULT_PRIORITY, PRIORITIES, Prompt, join_content
from parley.errors import EmptyPrompt, ModelError, SessionError
from parley.models.catalog import CHARS_PER_TOKEN, UNKNOWN_MODEL, ModelRef, model_info
from parley.protocol.base import UNSET, Json, convert
from parley.protocol.blocks import ToolResult, as_json
from parley.protocol.messages.conversation import User
from parley.protocol.messages.dialects import Injected, Queued
from parley.protocol.messages.notices import CommandLifecycle

if TYPE_CHECKING:
    from parley.engine.session.session import Session


class PromptIntake:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._silent: list[Prompt] = []
        """Prompts that start no turn, until they can be recorded."""

    def receive(self, message: User) -> None:
        session = self._session
        if has_tool_results(message):
            rest = session.get_client_tools().receive_results(message)
            if rest is None:
                return
            message = rest
        named = isinstance(message.uuid, str) and message.uuid != ""
        uuid = str(message.uuid) if named else session.clock.new_uuid()
        content = as_json(message.message.content)
        known = session.journal.known_uuids
        if named and uuid in known:
            if session.config.client.replay_user_messages:
                self._echo_one(Prompt(content=content, uuid=uuid, has_client_uuid=named))
            return
        known.add(uuid)
        session.resumed_turn.enqueue()  # for hosts without a handshake
        prompt = Prompt(
            content=content,
            uuid=uuid,
            has_client_uuid=named,
            origin=message.origin or None,
            priority=self._priority(message),
            verbatim=message.client_composed is True,
            traceparent=message.traceparent or None,
        )
        if session.main_agent is not None:
            prompt = session.main_agent.with_initial_prompt(prompt)
        prompt = session.commands.mark_local(prompt)
        self.send_lifecycle(prompt, "queued")
        if message.shouldQuery is False:
            # It must not come between a call and its result, so it waits for the end of what runs.
            self._silent.append(prompt)
            if not (session.is_running or session.control.is_changing or len(session.prompt_queue)):
                self.append_silent()
            return
        if session.suggester is not None:
            session.suggester.cancel()
        session.prompt_queue.put(prompt)
        self._send_queued(prompt)
        session.servers.start()  # for hosts without a handshake
        session.runner.yield_to_urgent()

    def _priority(self, message: User) -> int:
        wanted = message.priority
        if wanted in (UNSET, None):
            return DEFAULT_PRIORITY
        if not isinstance(wanted, str) or wanted not in PRIORITIES:
            known = ", ".join(PRIORITIES)
            self._session.config.warn(f"the priority {wanted!r:.100} of a prompt is none of {known}: it counts as next")
            return DEFAULT_PRIORITY
        return PRIORITIES[wanted]

    def _send_queued(self, prompt: Prompt) -> None:
        """Let the host know the place of a prompt that cannot begin yet."""
        behind = self.list_queued()
        if prompt in behind:
            place = behind.index(prompt) + 1
            self._session.send(Queued(position=place, user_message_uuid=prompt.uuid))

    def append_silent(self) -> None:
        """Record the prompts that start no turn, now that none runs."""
        silent, self._silent = self._silent, []
        if not silent:
            return
        try:
            self._session.conversation.close_interrupted_calls()
            self.append(silent)
        except SessionError as exc:
            self._session.config.warn(str(exc))
        for prompt in silent:
            self.send_lifecycle(prompt, "completed")

    def append(self, prompts: list[Prompt]) -> None:
        """Make prompts one message of the conversation. Raises SessionError."""
        session = self._session
        for prompt in prompts:
            session.config.tool_context.files.begin_message(prompt.uuid)
        json: Json = {
            "type": "user",
            "message": {
                "role": "user",
                "content": transcript_content(join_content(prompts, session.config.client.prompt_separator)),
            },
            "parent_tool_use_id": None,
            "uuid": prompts[0].uuid,
            # Each of them must be known again after a restart.
            **({"user_message_uuids": [prompt.uuid for prompt in prompts]} if len(prompts) > 1 else {}),
            "session_id": session.id,
            "timestamp": session.clock.now(),
        }
        session.journal.append_json(json, permissionMode=session.mode, promptId=prompts[0].uuid)

    def echo(self, prompts: list[Prompt]) -> None:
        """Repeat prompts to the host if it asked for it."""
        if self._session.config.client.replay_user_messages:
            for prompt in prompts:
                if not prompt.is_notification:
                    self._echo_one(prompt)

    def _echo_one(self, prompt: Prompt) -> None:
        json = {"type": "user", "message": {"role": "user", "content": transcript_content(prompt.content)}}
        echo: User = convert(json, User)
        self._session.host.send(
            msgspec.structs.replace(
                echo,
                session_id=self._session.id,
                parent_tool_use_id=None,
                uuid=prompt.uuid,
                timestamp=self._session.clock.now(),
                isReplay=True,
            )
        )

    def send_lifecycle(self, prompt: Prompt, state: str) -> None:
        """Tell the life of a prompt whose uuid the client gave."""
        if prompt.has_client_uuid:
            self._session.send(CommandLifecycle(command_uuid=prompt.uuid, state=state))

    def list_cancellable(self) -> list[Prompt]:
        """The prompts that may still be taken back, in the order in which they would be taken."""
        return [*self._session.prompt_queue.list_prompts(), *self._silent]

    def list_queued(self) -> list[Prompt]:
        """The prompts that wait behind what runs, or behind what is about to run."""
        waiting = self._session.prompt_queue.list_prompts()
        about_to_run = None if self._session.is_running else self._session.prompt_queue.next_prompt()
        return [prompt for prompt in waiting if prompt is not about_to_run]

    def cancel(self, prompt: Prompt) -> None:
        """Take a waiting prompt back. It never ran, so it may come again."""
        self._session.prompt_queue.remove(prompt.uuid)
        self._silent = [silent for silent in self._silent if silent.uuid != prompt.uuid]
        self._session.journal.known_uuids.discard(prompt.uuid)
        self._session.runner.forget_prompt(prompt.uuid)
        self.send_lifecycle(prompt, "cancelled")


def injected_message(prompts: list[Prompt], separator: str) -> Injected:
    """The note that prompts went into the running turn."""
    texts = [block["text"] for block in join_content(prompts, separator) if block.get("type") == "text"]
    return Injected(message_count=len(prompts), content_length=sum(map(len, texts)))


def has_tool_results(message: User) -> bool:
    """Whether a line has results of calls in it: somebody runs tools on the other side."""
    content = message.message.content
    return not isinstance(content, str) and any(isinstance(block, ToolResult) for block in content)


def check_not_empty(prompts: list[Prompt]) -> None:
    """A backend would refuse the request, or take it for a wish to go on with the last answer. Raises EmptyPrompt."""
    if not any(is_nonempty(block) for prompt in prompts for block in prompt.content):
        raise EmptyPrompt


def check_size(prompts: list[Prompt], model: ModelRef) -> None:
    """A prompt that no request can hold is refused before it spoils the conversation for good. Raises ModelError."""
    known = model_info(model.name)
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
