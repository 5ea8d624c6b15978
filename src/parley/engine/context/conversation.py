"""The conversation of one agent with its model: its configuration, history and messages to the client.

The session has one. Each subagent has another, with its own journal, instructions, tools and model; its messages
carry the id of the call that started it. The ledger, the model pool and the hooks are shared.

    conversation = Conversation(config, journal, send, ledger=..., tool_executor=..., models=..., mode=..., hooks=...)
    conversation.append_user(Text.of("Hi"))      # written to the journal, then sent
    request = conversation.build_request()

See also: `turn/model_call.py` for model calls, `turn/turn.py` for turns, `session/prompts.py` for prompts.
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
from parley.models.catalog import ModelRef, model_info, resolve
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
        """The permission mode, which can change."""
        self.hooks = hooks
        self.parent_tool_use_id = parent_tool_use_id
        self.transcript_path = ""
        """The transcript of a subagent, for hooks; the session's own is in `config.storage`."""
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
        """The schema that answers must match."""
        if config.output_schema is not None:
            self.set_output_schema(config.output_schema)
        self._sent_rate_limit: RateLimitInfo | None = None
        self.gauge = ContextGauge()
        self.memory_worker = memory_worker
        """The long-term memory; only the session's own conversation can have one."""

    # Model calls.

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
        """The next model call. It starts with the bytes of the last one."""
        known = self.config.model.get_info(self.model)
        max_tokens = self.limits.max_output_tokens or known.max_output_tokens
        return ModelRequest(
            model=self.model.request_name,
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

    # Context window.

    @property
    def window(self) -> int:
        """The context window, in tokens."""
        return self.config.compaction.window or self.config.model.get_info(self.model).context_window

    @property
    def answer_tokens(self) -> int:
        return self.limits.max_output_tokens or self.config.model.get_info(self.model).max_output_tokens

    @property
    def compacts_at(self) -> int | None:
        """The number of tokens that triggers automatic compaction; None for never.

        Fake models have no window, so they need a limit from the user.
        """
        policy = self.config.compaction
        is_known = policy.has_limit or not self.model.is_fake
        if not (policy.is_allowed and self.auto_compact and is_known):
            return None
        return threshold(policy, self.window, self.answer_tokens)

    @property
    def auto_compact(self) -> bool:
        """Whether automatic compaction is enabled; the setting can change."""
        settings = self.config.settings
        return self.config.compaction.is_automatic and (
            settings is None or settings.merged.get("autoCompactEnabled") is not False
        )

    def context_tokens(self) -> int:
        """The tokens of the next call, by the backend's count and an estimate."""
        return self.gauge.estimate(self.estimate_tokens())

    def estimate_tokens(self) -> int:
        """The tokens of the next call, estimated."""
        return self.journal.history.tokens + self.overhead_tokens()

    def overhead_tokens(self) -> int:
        """The tokens of the system prompt and the tools, estimated."""
        system = self.journal.system_text if self.journal.system_text is not None else render(self.instructions)
        return tokens_from_chars(len(system)) + sum(map(estimate_tokens, self._tool_schemas()))

    def is_nearly_full(self) -> bool:
        """Whether the conversation must be compacted before the next call."""
        at, history_tokens = self.compacts_at, self.journal.history.tokens
        return at is not None and self.context_tokens() > at and self.gauge.has_grown(history_tokens, at)

    def set_output_schema(self, schema: OutputSchema) -> None:
        """Require structured output from now on."""
        self.output_schema = schema
        self.config.tools.add(schema.tool())

    @property
    def uses_output_tool(self) -> bool:
        """Whether the model gives structured output by a tool call."""
        return self.output_schema is not None and not self.config.model.get_info(self.model).supports_schemas

    def tool_names(self) -> list[str]:
        """The tools that the model is offered."""
        withheld = self.output_schema.name if self.output_schema is not None and not self.uses_output_tool else None
        return [name for name in self.config.tools if name != withheld]

    def _tool_schemas(self) -> list[Json]:
        # Fake models need no schemas, and loading the tools is slow.
        if self.model.is_fake:
            return []
        schemas = self.config.tools.schemas()
        if self.output_schema is None or self.uses_output_tool:
            return schemas
        return [schema for schema in schemas if schema["name"] != self.output_schema.name]

    def _system_prompt(self) -> str:
        """The system prompt: rendered once per session, then read from the journal."""
        if self.journal.system_text is None:
            self.journal.append_event("prompt", {"text": render(self.instructions)})
        return self.journal.system_text or ""

    def append_date(self) -> None:
        """Append the date if the day has changed; the system prompt stays the same. Raises SessionError."""
        today = self.clock.now()[:10]
        if self.journal.sent_date not in (None, today):
            line = self._user_message(Text.of(f"[{DATE}{today}]"), isSynthetic=True)
            self.journal.append(self.clock.stamp_message(line, self.config.session_id))
            self.journal.append_event("date", {"date": today})

    # Messages.

    def send(self, message: Message) -> None:
        """Send a message that is not written to the journal."""
        self._send_to_host(self.clock.stamp_message(message, self.config.session_id))

    def send_event(
        self,
        raw: bytes,
        message_id: str,
        ttft_ms: int | UnsetType = UNSET,
        abandoned_blocks: Json | UnsetType = UNSET,
    ) -> None:
        """Send one event of a stream. An answer has thousands, so it is built in one step."""
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
        """Send the rate limit if it has changed, to clients that understand it."""
        if (
            isinstance(limits, RateLimitInfo)
            and limits != self._sent_rate_limit
            and self.config.client.send_rate_limits
        ):
            self._sent_rate_limit = limits
            self.send(RateLimitEvent(rate_limit_info=limits))

    def append_and_send(self, message: Message) -> None:
        """Write a message to the journal, then send it. Raises SessionError."""
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
        """Append context for the model; the client does not receive it. Raises SessionError."""
        if texts:
            line = self._user_message(*(Text.of(text) for text in sanitize(texts)), isSynthetic=True)
            self.journal.append(self.clock.stamp_message(line, self.config.session_id))

    def close_open_calls(self, text: str) -> None:
        """Give every open call an error result. Raises SessionError."""
        for call in self.journal.history.open_calls():
            self.append_and_send(self._interrupted_result(call, text))

    def close_interrupted_calls(self, excluded: Collection[ToolUse] = ()) -> None:
        """Give the calls that an earlier process left open a result that says what is known. Raises SessionError."""
        continued = {call.id for call in excluded}
        for call, tool in self.journal.history.open_calls().items():
            if call in continued:
                continue
            text = interrupted_calls.outcome_text(
                tool,
                recorded=call not in self.journal.foreign_calls,
                # A client that received a call may have run it, whatever the journal says.
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
