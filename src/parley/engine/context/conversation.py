"""One agent's side of a talk: what it has heard, whom it asks, and how its lines reach the host.

The session has one. A subagent has another, with a record, instructions, tools and a model
of its own, made from a changed `Setup`, and the id of the call that started it on each of
its lines. The books, the open models and the host are shared: they come in from the session.

    conversation = Conversation(setup, record, send, ledger=..., caller=..., access=..., mode=...)
    ended = await Turn(conversation, prompts).run()

Not here: a call of the model (turn/model_call.py), a turn (turn/turn.py), prompts (session/prompts.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from parley.engine.accounting.ledger import Ledger
from parley.engine.context.compaction import Gauge, threshold
from parley.engine.context.history import marked, tokens, weight
from parley.engine.context.system_prompt import DATE, render, system_blocks
from parley.engine.hooks.registry import Listeners
from parley.engine.models.pool import Access
from parley.engine.models.thinking import thinking_field
from parley.engine.recovery import interrupted_calls
from parley.engine.session.config import Setup
from parley.engine.session.journal import Record
from parley.engine.text import sanitized
from parley.engine.turn.structured_output import Form
from parley.engine.turn.tool_executor import Caller
from parley.models.base import Model, ModelRequest
from parley.models.catalog import PUPPETS, Choice, resolve
from parley.protocol.base import UNSET, Json, Message, UnsetType
from parley.protocol.blocks import Block, Text, ToolResult, ToolUse
from parley.protocol.messages.conversation import Assistant, AssistantContent, StreamEvent, User, UserContent
from parley.protocol.messages.notices import RateLimitEvent, RateLimitInfo

if TYPE_CHECKING:
    from parley.engine.memory.worker import Remembering


class Conversation:
    def __init__(
        self,
        setup: Setup,
        record: Record,
        send: Callable[[Message], None],
        *,
        ledger: Ledger,
        caller: Caller,
        access: Access,
        mode: Callable[[], str],
        listeners: Listeners | None = None,
        parent_tool_use_id: str | None = None,
    ) -> None:
        self.setup = setup
        self.record = record
        self.ledger = ledger
        self.caller = caller
        self.mode = mode
        """The permission mode, which may change."""
        self.listeners = listeners or Listeners()
        self.parent_tool_use_id = parent_tool_use_id
        self.transcript_path = ""
        """Where hooks find what a subagent said; the session's own is the one of the setup."""
        self.limits = setup.limits
        self.stamp = setup.stamp
        self.partial = setup.partial
        self.model = resolve(setup.model_name)
        self.instructions = setup.instructions
        self.thinking = setup.thinking
        self.effort = setup.effort
        self._send = send
        self._access = access
        self.form: Form | None = None
        """What an answer must look like."""
        if setup.form is not None:
            self.take_form(setup.form)
        self._told_quota: RateLimitInfo | None = None
        self.gauge = Gauge()
        self.remembering: Remembering | None = None
        """Who sees to it that nothing is lost; only the session's own conversation may have somebody."""

    # What a model call needs.

    def current_model(self) -> Model:
        """Raises UsageError or ModelError."""
        return self.open_model(self.model)

    def open_model(self, choice: Choice) -> Model:
        """Raises UsageError or ModelError."""
        return self._access.open(choice)

    def request(self) -> ModelRequest:
        """The next model call. Its beginning is the last one, byte for byte."""
        known = self.setup.facts_of(self.model)
        max_tokens = self.limits.max_output_tokens or known.max_output_tokens
        return ModelRequest(
            model=self.model.name if self.model.adapter == "anthropic" else self.model.shown,
            system=system_blocks(self._system_prompt()),
            messages=marked(self.record.history.messages()),
            tools=self._tool_schemas(),
            max_tokens=max_tokens,
            thinking=thinking_field(self.thinking, known, max_tokens),
            effort=self.effort if known.takes_effort else None,
            betas=self.setup.betas,
            task_budget=self.limits.task_budget if known.takes_task_budget else None,
            session_id=self.setup.session_id,
            output_schema=self.form.schema if self.form is not None and known.knows_schemas else None,
        )

    # How full the window is.

    @property
    def window(self) -> int:
        """Tokens."""
        return self.setup.compaction.window or self.setup.facts_of(self.model).context_window

    @property
    def answer_tokens(self) -> int:
        return self.limits.max_output_tokens or self.setup.facts_of(self.model).max_output_tokens

    @property
    def compacts_at(self) -> int | None:
        """From how many tokens on the conversation is compacted by itself; None for never.

        That is, also, where the window is not known: puppets have none.
        """
        policy = self.setup.compaction
        is_known = policy.has_measure or self.model.adapter not in PUPPETS
        if not (policy.is_allowed and self.auto_compact and is_known):
            return None
        return threshold(policy, self.window, self.answer_tokens)

    @property
    def auto_compact(self) -> bool:
        """Whether the person wants it; the setting may change."""
        held = self.setup.settings
        return self.setup.compaction.by_itself and (held is None or held.merged.get("autoCompactEnabled") is not False)

    def context_tokens(self) -> int:
        """About how many the next call has."""
        return self.gauge.estimate(self.own_estimate())

    def own_estimate(self) -> int:
        """The same, whatever a backend says."""
        return self.record.history.tokens + self.tokens_around()

    def tokens_around(self) -> int:
        """About how many the instructions and the tools have."""
        system = self.record.system_text if self.record.system_text is not None else render(self.instructions)
        return tokens(len(system)) + sum(map(weight, self._tool_schemas()))

    def is_crowded(self) -> bool:
        """Whether the next call would come too near to the end of the window."""
        at, said = self.compacts_at, self.record.history.tokens
        return at is not None and self.context_tokens() > at and self.gauge.has_grown(said, at)

    def take_form(self, form: Form) -> None:
        """From now on answers have a form."""
        self.form = form
        self.setup.tools.add(form.tool())

    @property
    def forms_by_tool(self) -> bool:
        """Whether the model gives an answer that has a form by a call."""
        return self.form is not None and not self.setup.facts_of(self.model).knows_schemas

    def tool_names(self) -> list[str]:
        """The tools the model is offered."""
        withheld = self.form.name if self.form is not None and not self.forms_by_tool else None
        return [name for name in self.setup.tools if name != withheld]

    def _tool_schemas(self) -> list[Json]:
        # Models that are no models need no schemas, and loading the tools takes its time.
        if self.model.adapter in PUPPETS:
            return []
        schemas = self.setup.tools.schemas()
        if self.form is None or self.forms_by_tool:
            return schemas
        return [schema for schema in schemas if schema["name"] != self.form.name]

    def _system_prompt(self) -> str:
        """Rendered once, then the same for the session's life."""
        if self.record.system_text is None:
            self.record.note("prompt", {"text": render(self.instructions)})
        return self.record.system_text or ""

    def note_date(self) -> None:
        """A new day is told behind what was said: what was sent once is never changed. Raises SessionError."""
        today = self.stamp.now()[:10]
        if self.record.told_date not in (None, today):
            line = self._user_line(Text.of(f"[{DATE}{today}]"), isSynthetic=True)
            self.record.keep(self.stamp.on(line, self.setup.session_id))
            self.record.note("date", {"date": today})

    # Lines.

    def tell(self, message: Message) -> None:
        """Say a line that is not part of the record."""
        self._send(self.stamp.on(message, self.setup.session_id))

    def tell_event(
        self,
        raw: bytes,
        message_id: str,
        ttft_ms: int | UnsetType = UNSET,
        abandoned_blocks: Json | UnsetType = UNSET,
    ) -> None:
        """Say one event of the stream. There are thousands in an answer, so it is made complete at once."""
        self._send(
            StreamEvent(
                event=msgspec.Raw(raw),
                session_id=self.setup.session_id,
                parent_tool_use_id=self.parent_tool_use_id,
                uuid=self.stamp.new_uuid(),
                api_message_id=message_id,
                ttft_ms=ttft_ms,
                abandoned_blocks=abandoned_blocks,
            )
        )

    def tell_quota(self, quota: object) -> None:
        """Tell the state of the quota if it is news, to a client that can bear it."""
        if isinstance(quota, RateLimitInfo) and quota != self._told_quota and self.setup.tells_quota:
            self._told_quota = quota
            self.tell(RateLimitEvent(rate_limit_info=quota))

    def say(self, message: Message) -> None:
        """Record a line, then say it. Raises SessionError if it cannot be kept."""
        stamped = self.stamp.on(message, self.setup.session_id)
        self.record.keep(stamped)
        self._send(stamped)

    def say_assistant(self, inner: AssistantContent, **fields: Any) -> None:
        """Raises SessionError."""
        place = self.parent_tool_use_id
        if self.setup.extension_fields:
            from parley.engine.session import extension_fields

            fields |= extension_fields.fields(self)
        self.say(Assistant(message=inner, parent_tool_use_id=place, timestamp=self.stamp.now(), **fields))

    def say_user(self, *content: Block, **fields: Any) -> None:
        """Raises SessionError."""
        self.say(self._user_line(*content, **fields))

    def keep_contexts(self, texts: list[str]) -> None:
        """Record what hooks have to say to the model; the host is not told. Raises SessionError."""
        if texts:
            line = self._user_line(*(Text.of(text) for text in sanitized(texts)), isSynthetic=True)
            self.record.keep(self.stamp.on(line, self.setup.session_id))

    def answer_open_calls(self, text: str) -> None:
        """Give every call that has no result one that says why. Raises SessionError."""
        for call in self.record.history.open_calls():
            self.say(self._broken_off(call, text))

    def recover(self, but: Collection[ToolUse] = ()) -> None:
        """Give the calls that an earlier engine, or a full disk, left behind the results that are certain.

        Raises SessionError.
        """
        going_on = {call.id for call in but}
        for call, tool in self.record.history.open_calls().items():
            if call in going_on:
                continue
            text = interrupted_calls.verdict(
                tool,
                recorded=call not in self.record.foreign_calls,
                # A client that was told of a call may have run it, whatever was on record by then.
                allowed=call in self.record.allowed or self.caller.runs_elsewhere(tool),
                reads_only=self.caller.is_harmless(tool),
                changes=partial(self.setup.tool_context.files.changed_by, call),
            )
            self.record.keep(self.stamp.on(self._broken_off(call, text), self.setup.session_id))

    def _broken_off(self, call: str, text: str) -> User:
        return self._user_line(ToolResult.of(call, text, is_error=True), tool_use_result=f"Error: {text}")

    def _user_line(self, *content: Block, **fields: Any) -> User:
        return User(
            message=UserContent(content=list(content)),
            parent_tool_use_id=self.parent_tool_use_id,
            timestamp=self.stamp.now(),
            **fields,
        )

    def new_result_file(self, ending: str) -> Path:
        context = self.setup.tool_context
        return context.results_folder / f"{context.new_id()}.{ending}"
