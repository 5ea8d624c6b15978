"""The conversation of one agent with its model: its configuration, history and messages to the client.

The session has one. Each subagent has another, with its own journal, instructions, tools and model; its messages
carry the id of the call that started it. The ledger, the model pool and the hooks are shared (`SessionParts`).

    conversation = Conversation(config, journal, send, tool_executor, parts, selection)
    conversation.append_user(Text.of("Hi"))      # written to the journal, then sent
    request = conversation.build_request()

See also: `turn/model_call.py` for model calls, `turn/turn.py` for turns, `session/prompts.py` for prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, Any

import msgspec

from parley.engine.approval.gate import ApprovalGate, SessionMode
from parley.engine.context.history import (
    ANSWER_GROWTH,
    ANSWER_TOKENS,
    BINDING,
    MAX_IMAGE_CHARS,
    ContextGauge,
    Reader,
    estimate_tokens,
    make_digest,
    threshold,
    tokens_from_chars,
)
from parley.engine.context.models import ModelPool, ModelSelection, SideQuery
from parley.engine.context.system_prompt import (
    DATE,
    MODEL,
    as_note,
    find_date,
    mark_messages,
    mark_prefix,
    render,
    render_excluded,
    system_blocks,
)
from parley.engine.hooks.registry import HookRegistry
from parley.engine.ledger import Ledger
from parley.engine.mcp.manager import ServerManager
from parley.engine.session.config import SessionConfig
from parley.engine.session.journal import Journal
from parley.engine.session.outbox import Activity, Outbox
from parley.engine.session.prompts import PromptQueue
from parley.engine.tasks.manager import TaskManager
from parley.engine.turn.tool_executor import ToolExecutor
from parley.errors import ModelError, NotPossible, UsageError
from parley.host import SendMessages
from parley.models.base import DEFER, Model, ModelRequest
from parley.models.catalog import EFFORTS, ModelInfo, ModelRef, effort_for_budget, thinking_owner
from parley.protocol.base import Json, Message, Struct, sanitize
from parley.protocol.blocks import Block, Text, ToolResult, ToolUse
from parley.protocol.messages.conversation import Assistant, AssistantContent, StreamEvent, User, UserContent
from parley.protocol.messages.notices import RateLimitEvent, RateLimitInfo
from parley.protocol.messages.result import Denial
from parley.protocol.messages.system import Informational
from parley.protocol.option_kinds import OFF
from parley.protocol.options import ModelOptions
from parley.tools.base import Context

if TYPE_CHECKING:
    from parley.engine.context.tool_deferral import ToolDeferral
    from parley.engine.turn.structured_output import OutputSchema
    from parley.memory.base import MemoryWorker


PLAN_RULE = "You are in plan mode: read and search as much as you need, and change nothing."
PLAN_END = "When the plan is ready, present it with ExitPlanMode."
PLAN_OVER = "Plan mode has ended: you may make changes again."


class ClientDeclarations:
    """What the client declared in `initialize` about itself and the session, as far as no other part keeps it."""

    def __init__(self, *, forwards_text: bool, knows_plan: bool = False) -> None:
        self.forwards_text = forwards_text
        """The client receives the text of subagents."""
        self.title = ""
        """The title of a new session."""
        self.plan_instructions = ""
        """What else the model is told of plan mode."""
        self.summarizes_agents = False
        """Running subagents report what they do."""
        self.can_stop_tasks: bool | None = None
        """Whether the client can stop single tasks; None before the handshake."""
        self.knows_plan = knows_plan
        """Whether the model was told that the session is in plan mode."""

    def describe_plan_mode(self, context: Context) -> str:
        """What the model is told of plan mode, with the client's instructions."""
        self.knows_plan = True
        place = f" You may write it to {context.plan_file} first." if context.plan_file else ""
        return "\n\n".join(filter(None, (PLAN_RULE, self.plan_instructions, f"{PLAN_END}{place}")))

    def mode_news(self, mode: str, context: Context) -> list[str]:
        """What the model has to know of a mode that was changed without it."""
        if (mode == "plan") is self.knows_plan:
            return []
        if mode == "plan":
            return [as_note(self.describe_plan_mode(context))]
        self.knows_plan = False
        return [as_note(PLAN_OVER)]


class SessionParts(Struct, frozen=True, kw_only=True):
    """What is made before there is a conversation. Subagents work with the parts of their session."""

    config: SessionConfig
    outbox: Outbox
    activity: Activity
    prompt_queue: PromptQueue
    declared: ClientDeclarations
    ledger: Ledger
    models: ModelPool
    side_query: SideQuery
    hooks: HookRegistry
    mode: SessionMode
    gate: ApprovalGate
    tasks: TaskManager
    servers: ServerManager


MIN_BUDGET_TOKENS = 1024
REPLAY = "replay"
"""The backend that plays recordings."""
DEFAULT_EFFORT = "high"
"""Also the highest effort at which thinking can be off."""


class ThinkingOptions(Struct, frozen=True, kw_only=True):
    """How the user wants the model to think; None for the default of the model."""

    budget_tokens: int | None = None
    mode: str | None = None
    """adaptive, enabled or disabled."""
    display: str | None = None

    @property
    def is_off(self) -> bool:
        return self.mode == "disabled" or self.budget_tokens == 0

    @classmethod
    def from_options(cls, options: ModelOptions) -> ThinkingOptions:
        return cls(budget_tokens=options.max_thinking_tokens, mode=options.thinking, display=options.thinking_display)


class Conversation:
    def __init__(
        self,
        config: SessionConfig,
        journal: Journal,
        send: SendMessages,
        tool_executor: ToolExecutor,
        parts: SessionParts,
        selection: ModelSelection,
        parent_tool_use_id: str | None = None,
    ) -> None:
        self.config = config
        self.journal = journal
        self.tool_executor = tool_executor
        self.parts = parts
        self.ledger = parts.ledger
        self.models = parts.models
        self.hooks = parts.hooks
        self.selection = selection
        self.mode = selection.mode
        self.memory_worker: MemoryWorker | None = None
        """The long-term memory; only the session's own conversation can have one."""
        self.denials: list[Denial] = []
        """The calls of the current turn, and of its foreground agents, that were denied."""
        self.parent_tool_use_id = parent_tool_use_id
        self.transcript_path = ""
        """The transcript of a subagent, for hooks; the session's own is in `config.storage`."""
        self.options = config.options
        """The options of the session; the main agent can limit its turns."""
        self.limits = config.limits
        self.clock = config.clock
        self.include_partial_messages = config.options.include_partial_messages
        self._thinks_always: set[ModelRef] = set()
        """The models of which the user was told that their thinking cannot be turned off."""
        self.instructions = config.instructions
        self.records_prompt = config.options.system_prompt_snapshot not in OFF
        """Whether every request has the system prompt of the first one; otherwise each has its own."""
        self.thinking = ThinkingOptions.from_options(config.options)
        self.effort = config.options.effort
        self._send_to_host = send
        self.output_schema: OutputSchema | None = None
        """The schema that answers must match."""
        if config.output_schema is not None:
            self.set_output_schema(config.output_schema)
        self._deferral: ToolDeferral | None = None
        """The deferred tools; None until there are any that could be."""
        self.binding: Json | None = None
        """What thinking in the answer to the last request is bound to (history.py); None for fake models."""
        self._start_digest: tuple[str, list[Json], bytes] = ("", [], b"")
        """A system prompt, tools, and their digest."""
        self._marked_prefix: tuple[list[Json], str | None, tuple[list[Json], list[Json]]] = ([], None, ([], []))
        """Tools, a system prompt, and both with cache markers."""
        self._named_model: str | None = None
        """The model that the conversation names; empty for none."""
        self._sent_rate_limit: RateLimitInfo | None = None
        self.gauge = ContextGauge()
        self._weighed_schemas: tuple[list[Json], int] = ([], 0)
        """The definitions of all tools, and their tokens."""

    @property
    def tool_context(self) -> Context:
        """What the tools of this conversation work with."""
        return self.tool_executor.context

    # Model calls.

    @property
    def model(self) -> ModelRef:
        """The model to call now."""
        chosen = self.selection.chosen
        return chosen if chosen.planning is None else self.selection.current  # asked for often

    @model.setter
    def model(self, choice: ModelRef) -> None:
        self.selection.chosen = choice

    @property
    def chosen_model(self) -> ModelRef:
        """The model that was asked for."""
        return self.selection.chosen

    def use_model(self, name: str) -> ModelRef:
        """Switch to a model by name. Raises NotPossible if there is no such model."""
        self.model = self.find_model(name)
        return self.model

    def find_model(self, name: str) -> ModelRef:
        """Resolve the name of a model and check that it exists. Raises NotPossible."""
        choice = self.config.model.resolve(self.config.model.name if name == "default" else name)
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
        schema = self.output_schema
        known = self.config.model.get_info(self.model)
        system = self._system_prompt()
        self._fix_tools()
        tools = self.tool_schemas()
        history, reader = self.journal.history, self._make_reader(system, tools)
        history.read_by(reader)
        messages = history.render()
        self._report_replaced()
        self.binding = None if reader is None else {"owner": reader.owner, "prefix": history.prefix}
        output_schema = schema.schema if schema is not None and known.supports_schemas else None
        return self._make_request(system, tools, messages, output_schema, joins_texts=True)

    def _report_replaced(self) -> None:
        """Tell the client of images that are not sent."""
        for text in self.journal.history.take_replaced():
            self.send(Informational(content=f"An image is not sent to the model: {text}", level="warning"))

    def build_side_request(self, messages: list[Json]) -> ModelRequest:
        """A call that is not part of the conversation, with the messages of `render_aside`. Nothing is journalled."""
        return self._make_request(self._side_prompt(), self.tool_schemas(), messages)

    def render_aside(self, end: int | None = None) -> list[Json]:
        """The messages of the conversation, or those before `end`, for a call that is not part of it."""
        self.journal.history.read_by(self._make_reader(self._side_prompt(), self.tool_schemas()))
        return self.journal.history.render(end)

    def _side_prompt(self) -> str:
        """The system prompt, which a call that is not part of the conversation must not journal."""
        recorded = self.journal.system_text if self.records_prompt else None
        return recorded if recorded is not None else self._render_prompt()

    def _make_reader(self, system: str, tools: list[Json]) -> Reader | None:
        """Whom a request is for; None for fake models, which read everything."""
        if self.model.is_fake:
            return None
        known_system, known_tools, start = self._start_digest
        if system != known_system or len(tools) != len(known_tools) or not all(map(is_, tools, known_tools)):
            # A deferred tool is not part of what comes first: the API puts it where a result refers to it.
            start = make_digest(system, [tool for tool in tools if DEFER not in tool])
            self._start_digest = system, tools, start
        is_claude = self.model.is_messages_api or self.model.backend.chosen_by == "environment"
        refers = self.config.tool_search.uses_references(self.model)
        return Reader(
            owner=thinking_owner(self.model.request_name),
            start=start,
            convert=self._keep_references if refers else self._spell_out_references,
            max_image_chars=MAX_IMAGE_CHARS if is_claude else None,
        )

    def _make_request(
        self,
        system: str,
        tools: list[Json],
        messages: list[Json],
        output_schema: Json | None = None,
        *,
        joins_texts: bool = False,
    ) -> ModelRequest:
        known = self.config.model.get_info(self.model)
        max_tokens = self.options.max_output_tokens or known.max_output_tokens
        thinking = thinking_field(self.thinking, known, max_tokens)
        # A server may refuse a request whose answer could exceed the window. The budget for thinking, which spans a
        # whole turn, stays the same: another one would not read the cache.
        if not self.model.is_fake:
            max_tokens = min(max_tokens, max(ANSWER_TOKENS, known.context_window - self.context_tokens()))
        if not known.thinking_betas:
            thinking = thinking_field(self.thinking, known, max_tokens)
        cache_ttl = self.options.cache_ttl
        self._report_thinking(known)
        tools, blocks = self._mark_prefix(tools, system)
        return ModelRequest(
            model=self.model.request_name,
            system=blocks,
            messages=mark_messages(messages, cache_ttl),
            tools=tools,
            max_tokens=max_tokens,
            thinking=thinking,
            effort=choose_effort(self.effort, self.options.max_effort, self.thinking, known),
            betas=self.options.betas,
            task_budget=self.options.task_budget if known.supports_task_budget else None,
            session_id=self.config.identity.id,
            output_schema=output_schema,
            joins_texts=joins_texts,
        )

    def _mark_prefix(self, tools: list[Json], system: str) -> tuple[list[Json], list[Json]]:
        """The tools and the system prompt with cache markers: the same objects as long as nothing changes."""
        known_tools, known_system, marked = self._marked_prefix
        if system != known_system or len(tools) != len(known_tools) or not all(map(is_, tools, known_tools)):
            marked = mark_prefix(tools, system_blocks(system), self.options.cache_ttl)
            self._marked_prefix = tools, system, marked
        return marked

    def _report_thinking(self, known: ModelInfo) -> None:
        """Tell the user once if thinking cannot be turned off."""
        choice = self.model
        if self.thinking.is_off and known.thinking_off == "always_on" and choice not in self._thinks_always:
            self._thinks_always.add(choice)
            self.config.warn(f"warning: {choice.display_name} always thinks; a lower effort makes it think less")

    # Context window.

    @property
    def window(self) -> int:
        """The context window, in tokens."""
        return self.config.compaction.window or self.config.model.get_info(self.model).context_window

    @property
    def answer_tokens(self) -> int:
        """What the next answer is expected to take at most, judging by the earlier ones."""
        most = self.options.max_output_tokens or self.config.model.get_info(self.model).max_output_tokens
        return min(most, max(ANSWER_TOKENS, ANSWER_GROWTH * self.gauge.longest_answer))

    @property
    def compacts_at(self) -> int | None:
        """The number of tokens that triggers automatic compaction; None for never.

        Fake models have no window, so they need a limit from the user.
        """
        policy = self.config.compaction
        is_known = policy.has_limit or not self.model.is_fake
        if not (is_known and policy.is_allowed and self.auto_compact):
            return None
        return threshold(policy, self.window, self.answer_tokens)

    @property
    def auto_compact(self) -> bool:
        """Whether automatic compaction is enabled; the setting can change."""
        enabled = self.config.settings.merged.get("autoCompactEnabled")
        return self.config.compaction.is_automatic and enabled is not False

    def context_tokens(self) -> int:
        """The tokens of the next call, by the backend's count and an estimate."""
        return self.gauge.estimate(self.estimate_tokens())

    def estimate_tokens(self) -> int:
        """The tokens of the next call, estimated."""
        return self.journal.history.tokens + self.overhead_tokens()

    def overhead_tokens(self) -> int:
        """The tokens of the system prompt and the tools, estimated."""
        return tokens_from_chars(len(self._side_prompt())) + self._weigh_schemas(self.tool_schemas())

    def _weigh_schemas(self, schemas: list[Json]) -> int:
        """The tokens of the definitions of tools, estimated once: they are mostly those of the call before."""
        known, tokens = self._weighed_schemas
        if len(known) != len(schemas) or not all(map(is_, known, schemas)):
            tokens = sum(map(estimate_tokens, schemas))
            self._weighed_schemas = schemas, tokens
        return tokens

    def is_nearly_full(self) -> bool:
        """Whether the conversation must be compacted before the next call."""
        at = self.compacts_at
        return at is not None and self.gauge.is_due(self.context_tokens(), self.journal.history.tokens, at)

    def set_output_schema(self, schema: OutputSchema) -> None:
        """Require structured output from now on."""
        self.output_schema = schema
        self.config.tools.add(schema.tool())

    @property
    def uses_output_tool(self) -> bool:
        """Whether the model gives structured output by a tool call."""
        return self.output_schema is not None and not self.config.model.get_info(self.model).supports_schemas

    def tool_names(self) -> list[str]:
        """The tools that the model is offered, deferred or not."""
        self.find_deferral()
        withheld = self.output_schema.name if self.output_schema is not None and not self.uses_output_tool else None
        return [name for name in self.config.tools if name != withheld]

    def find_deferral(self) -> ToolDeferral | None:
        """The deferred tools; None if the model is given the definitions of all tools."""
        tools = self._update_tools()
        return tools if tools is not None and tools.is_in_use else None

    def _update_tools(self) -> ToolDeferral | None:
        """What decides which tools are offered; None as long as all tools are built in, and the same as at first."""
        registry, fixed = self.config.tools, self.journal.fixed_tools
        if self._deferral is None:
            may_come = not self.model.is_fake and self._may_get_servers()
            defers = self.config.tool_search.defers_rare(self.model)
            if not (registry.has_external or may_come or defers) and fixed in (None, [*registry]):
                return None
            from parley.engine.context.tool_deferral import ToolDeferral

            self._deferral = ToolDeferral(
                registry, self.journal, self.config.tool_search, self._has_pending_servers, self._may_get_servers
            )
        self._deferral.update(self.model, self.window)
        return self._deferral

    def _has_pending_servers(self) -> bool:
        pending = self.tool_context.session.pending_servers
        return pending is not None and bool(pending.names())

    def _may_get_servers(self) -> bool:
        """Whether servers are still connecting, or the client can add some at any time."""
        is_own = self.parent_tool_use_id is None
        return self._has_pending_servers() or (is_own and self.config.options.input_format == "stream-json")

    def _fix_tools(self) -> None:
        """Journal the tools of the requests to come, and tell the model what has changed since. Raises SessionError."""
        if self.model.is_fake:
            return
        if (tools := self._update_tools()) is not None:
            tools.fix(self.model, self.window)
            if news := tools.announce():
                self.append_contexts([news])
        elif self.journal.fixed_tools is None:
            self.journal.append_event("tools", {"tools": [*self.config.tools]})

    def _keep_references(self, blocks: list[Json]) -> list[Json]:
        return self._convert_references(blocks, self.journal.loaded_definitions.__contains__)

    def _spell_out_references(self, blocks: list[Json]) -> list[Json]:
        return self._convert_references(blocks, lambda name: False)

    def _convert_references(self, blocks: list[Json], keeps: Callable[[str], bool]) -> list[Json]:
        if not self.journal.has_references:
            return blocks
        from parley.models.tool_references import replace_in_result

        return [replace_in_result(block, keeps, self.journal.loaded_definitions) for block in blocks]

    def tool_schemas(self) -> list[Json]:
        """The definitions that the model is given."""
        # Fake models need no schemas, and loading the tools is slow.
        if self.model.is_fake:
            return []
        tools = self._update_tools()
        schemas = self.config.tools.schemas() if tools is None else tools.schemas(self.model)
        if self.output_schema is None or self.uses_output_tool:
            return schemas
        return [schema for schema in schemas if schema["name"] != self.output_schema.name]

    def _system_prompt(self) -> str:
        """The system prompt: rendered once per session, then read from the journal."""
        if not self.records_prompt:
            return self._render_prompt()
        if self.journal.system_text is None:
            self.journal.append_event("prompt", {"text": self._render_prompt()})
        return self.journal.system_text or ""

    def _render_prompt(self) -> str:
        """The system prompt with the name of the model."""
        facts, name = self.instructions.environment, self.model.name
        if not facts or self.model.is_fake:
            return render(self.instructions)
        self._named_model = name
        return render(msgspec.structs.replace(self.instructions, environment=(*facts, f"{MODEL}{name}")))

    def model_news(self) -> list[str]:
        """The name of the model, if the conversation contains another one."""
        name = self.model.name
        if self._named_model is None:
            _, found, rest = (self.journal.system_text or "").partition(f"- {MODEL}")
            self._named_model = rest.partition("\n")[0] if found else ""
        if self._named_model in ("", name) or self.model.is_fake:
            return []
        self._named_model = name
        return [as_note(f"{MODEL}{name}")]

    def append_date(self) -> None:
        """Append the date if the day has changed; the system prompt stays the same. Raises SessionError."""
        today = self.clock.now()[:10]
        if self.journal.sent_date not in (None, today):
            line = self._user_message(Text.of(f"[{DATE}{today}]"), isSynthetic=True)
            self.journal.append(self.clock.stamp_message(line, self.config.identity.id))
            self.journal.append_event("date", {"date": today})

    def excluded_facts(self) -> list[str]:
        """What the model is told in a message because the system prompt excludes it."""
        text = render_excluded(self.instructions)
        if text and (date := find_date(text)) is not None:
            self.journal.append_event("date", {"date": date})
        return [text] if text else []

    # Messages.

    def send(self, message: Message) -> None:
        """Send a message that is not written to the journal."""
        self._send_to_host(self.clock.stamp_message(message, self.config.identity.id))

    def send_event(self, raw: bytes, message_id: str, **fields: Any) -> None:
        """Send one event of a stream."""
        event = StreamEvent(
            event=msgspec.Raw(raw),
            session_id=self.config.identity.id,
            parent_tool_use_id=self.parent_tool_use_id,
            uuid=self.clock.new_uuid(),
            api_message_id=message_id,
            **fields,
        )
        self._send_to_host(event)

    def send_deltas(self, raws: Sequence[bytes], message_id: str) -> None:
        """Send events that arrived together. An answer has thousands, so there are no optional fields to unpack."""
        session_id, parent, new_uuid = self.config.identity.id, self.parent_tool_use_id, self.clock.new_uuid
        events = [
            StreamEvent(
                event=msgspec.Raw(raw),
                session_id=session_id,
                parent_tool_use_id=parent,
                uuid=new_uuid(),
                api_message_id=message_id,
            )
            for raw in raws
        ]
        self._send_to_host(*events)

    def send_rate_limit(self, limits: object) -> None:
        """Send the rate limit if it has changed, to clients that understand it."""
        if (
            isinstance(limits, RateLimitInfo)
            and limits != self._sent_rate_limit
            and self.config.client.send_rate_limits
        ):
            self._sent_rate_limit = limits
            self.send(RateLimitEvent(rate_limit_info=limits))

    def append_and_send(
        self,
        message: Message,
        shown: AssistantContent | None = None,
        ending: Json | None = None,
        binding: Json | None = None,
    ) -> None:
        """Write a message to the journal, then send it, with other content if `shown` is given. Raises SessionError.

        `ending`: the answer ends with this message, and how. `binding`: what its thinking is bound to.
        """
        stamped = self.clock.stamp_message(message, self.config.identity.id)
        context = {} if binding is None else {BINDING: binding}
        if ending is None:
            self.journal.append(stamped, **context)
        else:
            self.journal.append_answer(stamped, ending, **context)
        self._send_to_host(stamped if shown is None else msgspec.structs.replace(stamped, message=shown))

    def append_assistant(
        self,
        inner: AssistantContent,
        *,
        shown: AssistantContent | None = None,
        ending: Json | None = None,
        binding: Json | None = None,
        **fields: Any,
    ) -> None:
        """`shown` is what the client receives. `ending`, `binding`: see append_and_send. Raises SessionError."""
        place = self.parent_tool_use_id
        if self.options.extension_fields:
            from parley.engine.session.dialect_fields import extension_fields

            fields |= extension_fields(self)
        message = Assistant(message=inner, parent_tool_use_id=place, timestamp=self.clock.now(), **fields)
        self.append_and_send(message, shown, ending, binding)

    def append_user(self, *content: Block, **fields: Any) -> None:
        """Raises SessionError."""
        self.append_and_send(self._user_message(*content, **fields))

    def append_contexts(self, texts: list[str]) -> None:
        """Append context for the model; the client does not receive it. Raises SessionError."""
        if texts:
            line = self._user_message(*(Text.of(text) for text in sanitize(texts)), isSynthetic=True)
            self.journal.append(self.clock.stamp_message(line, self.config.identity.id))

    def has_result(self, call: str, text: str) -> bool:
        """Whether the model can see this text as the result of a call. A recording may have seen it twice."""
        return self.journal.history.results.get(call) == text and self.model.adapter != REPLAY

    def close_open_calls(self, text: str) -> None:
        """Give every open call an error result. Raises SessionError."""
        for call in self.journal.history.open_calls():
            self.append_and_send(self._interrupted_result(call, text))

    def close_interrupted_calls(self, excluded: Collection[ToolUse] = (), *, shows: bool = False) -> None:
        """Give the calls that an earlier process left open a result that says what is known. Raises SessionError.

        With `shows`, the client gets the results, too.
        """
        continued = {call.id for call in excluded}
        for call, tool in self.journal.history.open_calls().items():
            if call in continued:
                continue
            from parley.engine.session.recover import outcome_text

            text = outcome_text(
                tool,
                recorded=call not in self.journal.foreign_calls,
                # A client that received a call may have run it, whatever the journal says.
                allowed=call in self.journal.allowed_calls or self.tool_executor.runs_elsewhere(tool),
                reads_only=self.tool_executor.is_harmless(tool),
                changes=partial(self.config.workspace.files.changed_by, call),
            )
            if earlier := self.config.workspace.processes.find_earlier(call):
                text = f"{text} {earlier}"
            result = self._interrupted_result(call, text)
            if shows:
                self.append_and_send(result)
            else:
                self.journal.append(self.clock.stamp_message(result, self.config.identity.id))

    def _interrupted_result(self, call: str, text: str) -> User:
        return self._user_message(ToolResult.of(call, text, is_error=True), tool_use_result=f"Error: {text}")

    def _user_message(self, *content: Block, **fields: Any) -> User:
        return User(
            message=UserContent(content=list(content)),
            parent_tool_use_id=self.parent_tool_use_id,
            timestamp=self.clock.now(),
            **fields,
        )


def thinking_field(options: ThinkingOptions, model_info: ModelInfo, max_tokens: int) -> Json | None:
    """The request's `thinking`, or None to leave it out."""
    no_room = model_info.thinking == "budget" and max_tokens <= MIN_BUDGET_TOKENS
    if model_info.thinking == "never" or no_room:
        return None
    if options.is_off:
        return {"type": model_info.thinking_off} if model_info.has_off_type else None
    field: Json = {"type": "adaptive"}
    if model_info.thinking == "effort" and options.budget_tokens is not None:
        field = {"type": "enabled", "budget_tokens": options.budget_tokens}
    elif model_info.thinking == "budget":
        budget = options.budget_tokens if options.budget_tokens is not None else max_tokens - 1
        # The budget is part of max_tokens, and the API wants some tokens left for the answer.
        field = {"type": "enabled", "budget_tokens": max(MIN_BUDGET_TOKENS, min(budget, max_tokens - 1))}
    return {**field, "display": options.display} if options.display else field


def choose_effort(wanted: str | None, highest: str | None, thinking: ThinkingOptions, known: ModelInfo) -> str | None:
    """The request's effort, or None to leave it out: one that the model takes, and not more than the highest one."""
    if wanted is None and known.thinking == "adaptive" and thinking.budget_tokens:
        wanted = effort_for_budget(thinking.budget_tokens)
    effort = limit_effort(wanted, highest)
    if thinking.is_off and known.has_off_type:
        effort = limit_effort(effort, DEFAULT_EFFORT)
    if effort is None or effort in known.efforts or effort not in EFFORTS:
        return effort if known.efforts else None
    lower = [level for level in known.efforts if EFFORTS.index(level) < EFFORTS.index(effort)]
    return lower[-1] if lower else None


def limit_effort(effort: str | None, highest: str | None) -> str | None:
    """The effort, but not more than the highest one. A model whose effort is not set works at `high`."""
    if highest is None or highest not in EFFORTS:
        return effort
    wanted = effort or DEFAULT_EFFORT
    if wanted in EFFORTS and EFFORTS.index(wanted) <= EFFORTS.index(highest):
        return effort
    return highest
