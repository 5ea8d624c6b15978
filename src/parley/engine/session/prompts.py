"""From a user line to the conversation: what becomes of each prompt, told to the one who sent it.

take      a line of the host: known already, silent, or queued
keep      prompts become part of the conversation
report    queued, started, completed or cancelled, by the uuid that the client gave
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from parley.engine.context.history import says_something
from parley.engine.session.prompt_queue import RANKS, USUAL, Prompt, join
from parley.errors import EmptyPrompt, ModelError, SessionError
from parley.models.catalog import CHARS_PER_TOKEN, UNKNOWN, Choice, facts
from parley.protocol.base import UNSET, Json, convert
from parley.protocol.blocks import ToolResult, as_json
from parley.protocol.messages.conversation import User
from parley.protocol.messages.dialects import Injected, Queued
from parley.protocol.messages.notices import CommandLifecycle

if TYPE_CHECKING:
    from parley.engine.session.session import Session


class Prompts:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._silent: list[Prompt] = []
        """Prompts that start no turn, until they can be recorded."""

    def take(self, message: User) -> None:
        session = self._session
        if has_results(message):
            rest = session.calls_of_client().take(message)
            if rest is None:
                return
            message = rest
        named = isinstance(message.uuid, str) and message.uuid != ""
        uuid = str(message.uuid) if named else session.stamp.new_uuid()
        content = as_json(message.message.content)
        known = session.record.known_uuids
        if named and uuid in known:
            if session.setup.replay:
                self._echo_one(Prompt(content=content, uuid=uuid, named=named))
            return
        known.add(uuid)
        session.unfinished.offer()  # for hosts without a handshake
        prompt = Prompt(
            content=content,
            uuid=uuid,
            named=named,
            origin=message.origin or None,
            rank=self._rank(message),
            verbatim=message.client_composed is True,
            traceparent=message.traceparent or None,
        )
        if session.lead is not None:
            prompt = session.lead.opened(prompt)
        prompt = session.commands.marked(prompt)
        self.report(prompt, "queued")
        if message.shouldQuery is False:
            # It must not come between a call and its result, so it waits for the end of what runs.
            self._silent.append(prompt)
            if not (session.is_running or session.control.is_changing or len(session.inbox)):
                self.keep_silent()
            return
        if session.suggester is not None:
            session.suggester.drop()
        session.inbox.put(prompt)
        self._note_waiting(prompt)
        session.servers.start()  # for hosts without a handshake
        session.turns.give_way()

    def _rank(self, message: User) -> int:
        wanted = message.priority
        if wanted in (UNSET, None):
            return USUAL
        if not isinstance(wanted, str) or wanted not in RANKS:
            known = ", ".join(RANKS)
            self._session.setup.complain(
                f"the priority {wanted!r:.100} of a prompt is none of {known}: it counts as next"
            )
            return USUAL
        return RANKS[wanted]

    def _note_waiting(self, prompt: Prompt) -> None:
        """Let the host know the place of a prompt that cannot begin yet."""
        behind = self.behind()
        if prompt in behind:
            place = behind.index(prompt) + 1
            self._session.tell(Queued(position=place, user_message_uuid=prompt.uuid))

    def keep_silent(self) -> None:
        """Record the prompts that start no turn, now that none runs."""
        silent, self._silent = self._silent, []
        if not silent:
            return
        try:
            self._session.conversation.recover()
            self.keep(silent)
        except SessionError as flaw:
            self._session.setup.complain(str(flaw))
        for prompt in silent:
            self.report(prompt, "completed")

    def keep(self, prompts: list[Prompt]) -> None:
        """Make prompts one message of the conversation. Raises SessionError."""
        session = self._session
        for prompt in prompts:
            session.setup.tool_context.files.begin_message(prompt.uuid)
        json: Json = {
            "type": "user",
            "message": {"role": "user", "content": prompt_content(join(prompts, session.setup.joint))},
            "parent_tool_use_id": None,
            "uuid": prompts[0].uuid,
            # Each of them must be known again after a restart.
            **({"user_message_uuids": [prompt.uuid for prompt in prompts]} if len(prompts) > 1 else {}),
            "session_id": session.id,
            "timestamp": session.stamp.now(),
        }
        session.record.keep_json(json, permissionMode=session.mode, promptId=prompts[0].uuid)

    def echo(self, prompts: list[Prompt]) -> None:
        """Repeat prompts to the host if it asked for it."""
        if self._session.setup.replay:
            for prompt in prompts:
                if not prompt.is_notification:
                    self._echo_one(prompt)

    def _echo_one(self, prompt: Prompt) -> None:
        json = {"type": "user", "message": {"role": "user", "content": prompt_content(prompt.content)}}
        echo: User = convert(json, User)
        self._session.host.tell(
            msgspec.structs.replace(
                echo,
                session_id=self._session.id,
                parent_tool_use_id=None,
                uuid=prompt.uuid,
                timestamp=self._session.stamp.now(),
                isReplay=True,
            )
        )

    def report(self, prompt: Prompt, state: str) -> None:
        """Tell the life of a prompt whose uuid the client gave."""
        if prompt.named:
            self._session.tell(CommandLifecycle(command_uuid=prompt.uuid, state=state))

    def waiting(self) -> list[Prompt]:
        """The prompts that may still be taken back, in the order in which they would be taken."""
        return [*self._session.inbox.waiting(), *self._silent]

    def behind(self) -> list[Prompt]:
        """The prompts that wait behind what runs, or behind what is about to run."""
        waiting = self._session.inbox.waiting()
        about_to_run = None if self._session.is_running else self._session.inbox.next_prompt()
        return [prompt for prompt in waiting if prompt is not about_to_run]

    def withdraw(self, prompt: Prompt) -> None:
        """Take a waiting prompt back. It never ran, so it may come again."""
        self._session.inbox.drop(prompt.uuid)
        self._silent = [silent for silent in self._silent if silent.uuid != prompt.uuid]
        self._session.record.known_uuids.discard(prompt.uuid)
        self._session.turns.forget(prompt.uuid)
        self.report(prompt, "cancelled")


def injected(prompts: list[Prompt], joint: str) -> Injected:
    """The note that prompts went into the running turn."""
    texts = [block["text"] for block in join(prompts, joint) if block.get("type") == "text"]
    return Injected(message_count=len(prompts), content_length=sum(map(len, texts)))


def has_results(message: User) -> bool:
    """Whether a line has results of calls in it: somebody runs tools on the other side."""
    content = message.message.content
    return not isinstance(content, str) and any(isinstance(block, ToolResult) for block in content)


def check_words(prompts: list[Prompt]) -> None:
    """A backend would refuse the request, or take it for a wish to go on with the last answer. Raises EmptyPrompt."""
    if not any(says_something(block) for prompt in prompts for block in prompt.content):
        raise EmptyPrompt


def check_size(prompts: list[Prompt], model: Choice) -> None:
    """A prompt that no request can hold is refused before it spoils the conversation for good. Raises ModelError."""
    known = facts(model.name)
    window = known.context_window
    chars = sum(len(block.get("text", "")) for prompt in prompts for block in prompt.content)
    if known is not UNKNOWN and chars > window * CHARS_PER_TOKEN:
        text = f"Prompt is too long: about {chars // CHARS_PER_TOKEN} tokens, and {model.name} takes {window}"
        raise ModelError(text, kind="prompt_too_long")


def prompt_content(content: list[Json]) -> str | list[Json]:
    """A prompt as the transcript keeps it: one plain text as a string."""
    if len(content) == 1 and set(content[0]) == {"type", "text"} and content[0]["type"] == "text":
        return str(content[0]["text"])
    return content
