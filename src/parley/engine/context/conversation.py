"""One agent's side of a talk: what it has heard, whom it asks, and how its lines reach the host.

The session has one. A subagent has another, with a record, instructions, tools and a model
of its own, made from a changed `Setup`, and the id of the call that started it on each of
its lines. The books, the open models and the host are shared: they come in from the session.

    conversation = Conversation(setup, record, send, ledger=..., caller=..., access=..., mode=...)
    turn = Turn(conversation, prompts)

Not here: a call of the model (turn/model_call.py), a turn (turn/turn.py), prompts (session/prompts.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from parley.engine.accounting.ledger import Ledger
from parley.engine.context.compaction import ContextGauge, threshold
from parley.engine.context.history import estimate_tokens, tokens_from_chars, with_cache_marker
from parley.engine.context.system_prompt import DATE, render, system_blocks
from parley.engine.hooks.registry import HookRegistry
from parley.engine.models.pool import ModelPool
from parley.engine.models.thinking import thinking_field
from parley.engine.recovery import interrupted_calls
from parley.engine.session.config import SessionConfig
from parley.engine.session.journal import Journal
from parley.engine.text import sanitize
from parley.engine.turn.structured_output import OutputSchema
from parley.engine.turn.tool_executor import ToolExecutor
from parley.errors import ModelError, NotPossible, UsageError
from parley.models.base import Model, ModelRequest
from parley.models.catalog import FAKE_ADAPTERS, ModelRef, model_info, resolve
from parley.protocol.base import UNSET, Json, Message, UnsetType
from parley.protocol.blocks import Block, Text, ToolResult, ToolUse
from parley.protocol.messages.conversation import Assistant, AssistantContent, StreamEvent, User, UserContent
from parley.protocol.messages.notices import RateLimitEvent, RateLimitInfo

if TYPE_CHECKING:
    from parley.memory.base import MemoryWorker


class Conversation:
    def __init__(
        self,
        config: SessionConfig,
        journal: Journal,
        send: Callable[[Message], None],
        *,
        ledger: Ledger,
        tool_executor: ToolExecutor,
        models: ModelPool,
        mode: Callable[[], str],
        hooks: HookRegistry,
        parent_tool_use_id: str | None = None,
        memory_worker: MemoryWorker | None = None,
    ) -> None:
        self.config = config
        self.journal = journal
        self.ledger = ledger
        self.tool_executor = tool_executor
        self.mode = mode
        """The permission mode, which may change."""
        self.hooks = hooks
        self.parent_tool_use_id = parent_tool_use_id
        self.transcript_path = ""
        """Where hooks find what a subagent said; the session's own is the one of the setup."""
        self.limits = config.limits
        self.clock = config.clock
        self.include_partial_messages = config.client.include_partial_messages
        self.model = resolve(config.model.name)
        self.instructions = config.instructions
        self.thinking = config.model.thinking
        self.effort = config.model.effort
        self._send_to_host = send
        self.models = models
        self.output_schema: OutputSchema | None = None
        """What an answer must look like."""
        if config.output_schema is not None:
            self.set_output_schema(config.output_schema)
        self._sent_rate_limit: RateLimitInfo | None = None
        self.gauge = ContextGauge()
        self.memory_worker = memory_worker
        """The long-term memory; only the session's own conversation can have one."""

    # What a model call needs.

    def current_model(self) -> Model:
        """Raises UsageError or ModelError."""
        return self.open_model(self.model)

    def use_model(self, name: str) -> ModelRef:
        """Switch to a model by name. Raises NotPossible if there is no such model."""
        self.model = choice = self.find_model(name)
        self.config.tool_context.strict_reads = model_info(choice.name).must_read_first
        return choice

    def find_model(self, name: str) -> ModelRef:
        """Resolve the name of a model and check that it exists. Raises NotPossible."""
        choice = resolve(self.config.model.name if name == "default" else name)
        try:
            self.open_model(choice)
        except UsageError as exc:
            raise NotPossible(str(exc)) from None
        except ModelError:
            pass  # a key can still be set; the turn that needs it reports the error
        return choice

    def open_model(self, choice: ModelRef) -> Model:
        """Raises UsageError or ModelError."""
        return self.models.open(choice)

    def build_request(self) -> ModelRequest:
        """The next model call. Its beginning is the last one, byte for byte."""
        known = self.config.model.get_info(self.model)
        max_tokens = self.limits.max_output_tokens or known.max_output_tokens
        return ModelRequest(
            model=self.model.name if self.model.adapter == "anthropic" else self.model.display_name,
            system=system_blocks(self._system_prompt()),
            messages=with_cache_marker(self.journal.history.render()),
            tools=self._tool_schemas(),
            max_tokens=max_tokens,
            thinking=thinking_field(self.thinking, known, max_tokens),
            effort=self.effort if known.supports_effort else None,
            betas=self.config.model.betas,
            task_budget=self.limits.task_budget if known.supports_task_budget else None,
            session_id=self.config.session_id,
            output_schema=self.output_schema.schema
            if self.output_schema is not None and known.supports_schemas
            else None,
        )

    # How full the window is.

    @property
    def window(self) -> int:
        """Tokens."""
        return self.config.compaction.window or self.config.model.get_info(self.model).context_window

    @property
    def answer_tokens(self) -> int:
        return self.limits.max_output_tokens or self.config.model.get_info(self.model).max_output_tokens

    @property
    def compacts_at(self) -> int | None:
        """From how many tokens on the conversation is compacted by itself; None for never.

        That is, also, where the window is not known: puppets have none.
        """
        policy = self.config.compaction
        is_known = policy.has_limit or self.model.adapter not in FAKE_ADAPTERS
        if not (policy.is_allowed and self.auto_compact and is_known):
            return None
        return threshold(policy, self.window, self.answer_tokens)

    @property
    def auto_compact(self) -> bool:
        """Whether the person wants it; the setting may change."""
        held = self.config.settings
        return self.config.compaction.is_automatic and (
            held is None or held.merged.get("autoCompactEnabled") is not False
        )

    def context_tokens(self) -> int:
        """About how many the next call has."""
        return self.gauge.estimate(self.estimate_tokens())

    def estimate_tokens(self) -> int:
        """The same, whatever a backend says."""
        return self.journal.history.tokens + self.overhead_tokens()

    def overhead_tokens(self) -> int:
        """About how many the instructions and the tools have."""
        system = self.journal.system_text if self.journal.system_text is not None else render(self.instructions)
        return tokens_from_chars(len(system)) + sum(map(estimate_tokens, self._tool_schemas()))

    def is_nearly_full(self) -> bool:
        """Whether the next call would come too near to the end of the window."""
        at, said = self.compacts_at, self.journal.history.tokens
        return at is not None and self.context_tokens() > at and self.gauge.has_grown(said, at)

    def set_output_schema(self, schema: OutputSchema) -> None:
        """From now on answers have a form."""
        self.output_schema = schema
        self.config.tools.add(schema.tool())

    @property
    def uses_output_tool(self) -> bool:
        """Whether the model gives an answer that has a form by a call."""
        return self.output_schema is not None and not self.config.model.get_info(self.model).supports_schemas

    def tool_names(self) -> list[str]:
        """The tools the model is offered."""
        withheld = self.output_schema.name if self.output_schema is not None and not self.uses_output_tool else None
        return [name for name in self.config.tools if name != withheld]

    def _tool_schemas(self) -> list[Json]:
        # Models that are no models need no schemas, and loading the tools takes its time.
        if self.model.adapter in FAKE_ADAPTERS:
            return []
        schemas = self.config.tools.schemas()
        if self.output_schema is None or self.uses_output_tool:
            return schemas
        return [schema for schema in schemas if schema["name"] != self.output_schema.name]

    def _system_prompt(self) -> str:
        """Rendered once, then the same for the session's life."""
        if self.journal.system_text is None:
            self.journal.append_event("prompt", {"text": render(self.instructions)})
        return self.journal.system_text or ""

    def append_date(self) -> None:
        """A new day is told behind what was said: what was sent once is never changed. Raises SessionError."""
        today = self.clock.now()[:10]
        if self.journal.sent_date not in (None, today):
            line = self._user_message(Text.of(f"[{DATE}{today}]"), isSynthetic=True)
            self.journal.append(self.clock.stamp_message(line, self.config.session_id))
            self.journal.append_event("date", {"date": today})

    # Lines.

    def send(self, message: Message) -> None:
        """Say a line that is not part of the record."""
        self._send_to_host(self.clock.stamp_message(message, self.config.session_id))

    def send_event(
        self,
        raw: bytes,
        message_id: str,
        ttft_ms: int | UnsetType = UNSET,
        abandoned_blocks: Json | UnsetType = UNSET,
    ) -> None:
        """Say one event of the stream. There are thousands in an answer, so it is made complete at once."""
        self._send_to_host(
            StreamEvent(
                event=msgspec.Raw(raw),
                session_id=self.config.session_id,
                parent_tool_use_id=self.parent_tool_use_id,
                uuid=self.clock.new_uuid(),
                api_message_id=message_id,
                ttft_ms=ttft_ms,
                abandoned_blocks=abandoned_blocks,
            )
        )

    def send_rate_limit(self, limits: object) -> None:
        """Tell the state of the quota if it is news, to a client that can bear it."""
        if (
            isinstance(limits, RateLimitInfo)
            and limits != self._sent_rate_limit
            and self.config.client.send_rate_limits
        ):
            self._sent_rate_limit = limits
            self.send(RateLimitEvent(rate_limit_info=limits))

    def append_and_send(self, message: Message) -> None:
        """Record a line, then say it. Raises SessionError if it cannot be kept."""
        stamped = self.clock.stamp_message(message, self.config.session_id)
        self.journal.append(stamped)
        self._send_to_host(stamped)

    def append_assistant(self, inner: AssistantContent, **fields: Any) -> None:
        """Raises SessionError."""
        place = self.parent_tool_use_id
        if self.config.client.extension_fields:
            from parley.engine.session import extension_fields

            fields |= extension_fields.extension_fields(self)
        self.append_and_send(Assistant(message=inner, parent_tool_use_id=place, timestamp=self.clock.now(), **fields))

    def append_user(self, *content: Block, **fields: Any) -> None:
        """Raises SessionError."""
        self.append_and_send(self._user_message(*content, **fields))

    def append_contexts(self, texts: list[str]) -> None:
        """Record what hooks have to say to the model; the host is not told. Raises SessionError."""
        if texts:
            line = self._user_message(*(Text.of(text) for text in sanitize(texts)), isSynthetic=True)
            self.journal.append(self.clock.stamp_message(line, self.config.session_id))

    def close_open_calls(self, text: str) -> None:
        """Give every call that has no result one that says why. Raises SessionError."""
        for call in self.journal.history.open_calls():
            self.append_and_send(self._interrupted_result(call, text))

    def close_interrupted_calls(self, excluded: Collection[ToolUse] = ()) -> None:
        """Give the calls that an earlier engine, or a full disk, left behind the results that are certain.

        Raises SessionError.
        """
        going_on = {call.id for call in excluded}
        for call, tool in self.journal.history.open_calls().items():
            if call in going_on:
                continue
            text = interrupted_calls.outcome_text(
                tool,
                recorded=call not in self.journal.foreign_calls,
                # A client that was told of a call may have run it, whatever was on record by then.
                allowed=call in self.journal.allowed_calls or self.tool_executor.runs_elsewhere(tool),
                reads_only=self.tool_executor.is_harmless(tool),
                changes=partial(self.config.tool_context.files.changed_by, call),
            )
            self.journal.append(self.clock.stamp_message(self._interrupted_result(call, text), self.config.session_id))

    def _interrupted_result(self, call: str, text: str) -> User:
        return self._user_message(ToolResult.of(call, text, is_error=True), tool_use_result=f"Error: {text}")

    def _user_message(self, *content: Block, **fields: Any) -> User:
        return User(
            message=UserContent(content=list(content)),
            parent_tool_use_id=self.parent_tool_use_id,
            timestamp=self.clock.now(),
            **fields,
        )

    def new_result_file(self, ending: str) -> Path:
        context = self.config.tool_context
        return context.results_folder / f"{context.new_id()}.{ending}"
