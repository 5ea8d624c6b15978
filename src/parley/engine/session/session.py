"""One live session: builds its parts, holds them, and dispatches messages to them.

    handle(message)    dispatches a message of the client; never waits for a turn
    run_turns()        runs turn after turn, until the input has ended and nothing waits
    close_input()      no more input; running and waiting turns are finished

See also: `pump.py` connects it with the client, `turn/runner.py` runs the turns, `control/dispatcher.py` answers
control requests, `compose/` builds the configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from parley.engine.accounting.ledger import Ledger
from parley.engine.approval.gate import ApprovalGate, Approver
from parley.engine.approval.grants import Grants
from parley.engine.approval.session_mode import SessionMode
from parley.engine.commands.commands import Commands
from parley.engine.context.conversation import Conversation
from parley.engine.hooks.registry import HookRegistry
from parley.engine.mcp.manager import ServerManager
from parley.engine.models.pool import ModelPool
from parley.engine.recovery.pending_approvals import PendingApprovals, RecordingHost
from parley.engine.recovery.resumed_turn import ResumedTurn
from parley.engine.session.config import SessionConfig
from parley.engine.session.journal import Journal
from parley.engine.session.messages import init_message
from parley.engine.session.outbox import Activity, Outbox
from parley.engine.session.prompt_queue import PromptQueue
from parley.engine.session.prompts import PromptIntake, has_tool_results
from parley.engine.session.tool_services import connect_tools
from parley.engine.side.query import SideQuery
from parley.engine.tasks.manager import TaskManager
from parley.engine.turn.runner import TurnRunner
from parley.engine.turn.tool_executor import ToolExecutor
from parley.engine.turn.turn import Turn
from parley.host import Host
from parley.models.base import Model
from parley.models.catalog import ModelRef, resolve
from parley.protocol.base import Message, Refused, Unknown
from parley.protocol.messages import dialects
from parley.protocol.messages.control import ControlCancelRequest, ControlRequest, UpdateEnvironment
from parley.protocol.messages.conversation import User
from parley.protocol.messages.notices import KeepAlive
from parley.protocol.messages.result import Denial
from parley.tools.base import ToolOutput as ToolResult

if TYPE_CHECKING:
    from parley.engine.agents.environment import AgentEnvironment
    from parley.engine.agents.main_agent import MainAgent
    from parley.engine.agents.subagents import Subagents
    from parley.engine.hooks.dispatcher import HookDispatcher
    from parley.engine.side.suggestion import Suggester
    from parley.engine.turn.client_tools import ClientTools
    from parley.memory.base import MemoryWorker


class Control(Protocol):
    """Answers the client's control requests (control/dispatcher.py)."""

    @property
    def is_changing(self) -> bool:
        """Whether a request is changing files."""

    def receive(self, message: ControlRequest) -> None: ...
    def reject(self, refused: Refused) -> None: ...
    def cancel(self, message: ControlCancelRequest) -> None: ...
    def cancel_pending(self) -> None: ...
    async def wait_changes(self) -> None: ...
    async def close(self) -> None: ...


class Session:
    def __init__(self, config: SessionConfig, host: Host, make_control: Callable[[Session], Control]) -> None:
        self.id = config.session_id
        self.config = config
        self.clock = config.clock
        self.limits = config.limits
        self.started_at = config.clock.monotonic()
        self.forwards_subagent_text = config.client.forwards_subagent_text
        self.outbox = Outbox(config.session_id, config.clock, host, config.client.state_events)
        self.activity = Activity(self.outbox)
        self.prompt_queue = PromptQueue()
        self.control = make_control(self)

        # The log, and the state that follows from it.
        grants = Grants(config.session_id, config.cwd)
        self.journal = Journal(config.storage.log, config.clock, grants, config.storage.sync)
        self.ledger = Ledger(config.model.prices, config.limits.budget, config.clock.monotonic)
        pending = PendingApprovals(self.journal, config.clock.new_uuid)
        self.journal.load(self.ledger, config.warn)
        grants.restore(config.permissions.policy, config.warn)

        # What a conversation needs: hooks, models, tools and the permission to run them.
        self.hooks = self._make_hooks(pending)
        self.models = ModelPool(config.model.open, config.observer)
        self.tasks = TaskManager(config, self.outbox, self.journal, self.prompt_queue)
        self.servers = ServerManager(config, self.outbox, self.journal, self.prompt_queue, self.activity.waiting)
        self.permission_mode = SessionMode(config.permissions, config.settings, self.journal, self.outbox, config.warn)
        self.gate = self._make_gate(pending)
        self.tool_executor = ToolExecutor(config.tools, self.gate, config.tool_context, self.hooks, config.warn)
        self.side_query = self._make_side_query()
        self.memory_worker = self._make_memory_worker()
        self.conversation = self._make_conversation()

        # What enters the conversation.
        self.prompts = PromptIntake(self.conversation, self.outbox, self.prompt_queue, self.activity)
        self.commands = Commands(
            self.conversation, self.servers, self.prompt_queue, self.prompts, self.send_init, self.started_at
        )
        self.resumed_turn = ResumedTurn(
            self.journal, self.prompt_queue, self.outbox, is_fork=config.storage.start_source == "fork"
        )
        self.runner = TurnRunner(self)

        # Parts that few sessions have.
        self.subagents: Subagents | None = None
        self.client_tools: ClientTools | None = None
        self.suggester: Suggester | None = None
        self.main_agent: MainAgent | None = None
        """The agent that the session runs as, if any."""
        self._apply_config()

    def _apply_config(self) -> None:
        """Connect the tools, and load the parts that the configuration asks for."""
        config = self.config
        connect_tools(
            self.conversation, self.tasks, self.side_query, self.permission_mode, self._delegate, self._send_message
        )
        self.commands.register_tool()
        if config.settings is not None:
            self.hooks.set_commands(config.settings.merged)
        if config.client.tools:
            self.get_client_tools().declare(config.client.tools)
        if config.client.prompt_suggestions:
            self.enable_suggestions(True)
        if config.agents.main is not None:
            from parley.engine.agents.main_agent import MainAgent

            self.main_agent = MainAgent(self._agent_environment(), self.permission_mode, config.agents.main)

    def _make_hooks(self, pending: PendingApprovals) -> HookRegistry:
        config = self.config
        recording = RecordingHost(self.outbox.host, pending, config.limits.max_line_bytes, config.warn)
        return HookRegistry(config, recording, self._make_dispatcher)

    def _make_side_query(self) -> SideQuery:
        return SideQuery(
            open_model=self.models.open,
            current=lambda: self.conversation.model,
            small=resolve(self.config.model.small),
            ledger=self.ledger,
            clock=self.clock.monotonic,
            session_id=self.id,
        )

    def _make_conversation(self) -> Conversation:
        return Conversation(
            self.config,
            self.journal,
            self.outbox.host.send,
            ledger=self.ledger,
            tool_executor=self.tool_executor,
            models=self.models,
            mode=lambda: self.mode,
            hooks=self.hooks,
            memory_worker=self.memory_worker,
        )

    def _make_memory_worker(self) -> MemoryWorker | None:
        if self.config.make_memory is None:
            return None
        from parley.engine.session.memory_host import MemoryHost

        return self.config.make_memory(
            MemoryHost(
                journal=self.journal,
                outbox=self.outbox,
                side_query=self.side_query,
                get_model=lambda: self.conversation.model,
                get_mode=lambda: self.mode,
                small_model=self.config.model.small,
                warn=self.config.warn,
            )
        )

    def _make_dispatcher(self) -> HookDispatcher:
        from parley.engine.hooks.dispatcher import HookDispatcher, SessionState

        def get_state() -> SessionState:
            return SessionState(
                mode=self.mode,
                model=self.conversation.model.display_name,
                effort=self.conversation.effort,
                agent={} if self.main_agent is None else self.main_agent.hook_fields,
            )

        return HookDispatcher(self.config, self.outbox, self.tasks, get_state)

    def _make_gate(self, pending: PendingApprovals) -> ApprovalGate:
        return ApprovalGate(
            self.config.permissions,
            self._find_approver(),
            self.journal,
            self.outbox,
            mode=self.permission_mode,
            activity=self.activity,
            hooks=self.hooks,
            pending=pending,
            warn=self.config.warn,
        )

    def _find_approver(self) -> Approver | None:
        """An MCP tool, the client, or None if requests are denied."""
        config = self.config.permissions
        if config.prompt_tool is not None:
            from parley.engine.approval.mcp_prompt_tool import PromptTool

            return PromptTool(config.prompt_tool, self.servers)
        return self.outbox.host if config.asks_host else None

    async def _delegate(self, call: Any, tool_use_id: str) -> ToolResult:
        return await self.get_subagents().delegate_for(None)(call, tool_use_id)

    async def _send_message(self, to: str, message: str, tool_use_id: str) -> ToolResult:
        return await self.get_subagents().send_for(None)(to, message, tool_use_id)

    def _agent_environment(self) -> AgentEnvironment:
        from parley.engine.agents.environment import AgentEnvironment

        def add_denials(denials: Sequence[Denial]) -> None:
            if self.turn is not None:
                self.turn.tool_batch.denials += denials

        return AgentEnvironment(
            conversation=self.conversation,
            outbox=self.outbox,
            gate=self.gate,
            tasks=self.tasks,
            servers=self.servers,
            commands=self.commands,
            may_bypass=self.may_bypass,
            forwards_text=lambda: self.forwards_subagent_text,
            add_denials=add_denials,
        )

    def get_subagents(self) -> Subagents:
        """The subagents; loaded at the first use."""
        if self.subagents is None:
            from parley.engine.agents.subagents import Subagents

            self.subagents = Subagents(self._agent_environment())
        return self.subagents

    def get_client_tools(self) -> ClientTools:
        """The tools that the client runs; loaded at the first use."""
        if self.client_tools is None:
            from parley.engine.turn.client_tools import ClientTools

            self.client_tools = ClientTools(
                self.config.tools,
                self.journal,
                self.outbox,
                activity=self.activity,
                prompt_queue=self.prompt_queue,
                resumed_turn=self.resumed_turn,
                warn=self.config.warn,
            )
        return self.client_tools

    def enable_suggestions(self, enabled: bool) -> None:
        """Send suggestions for the next prompt, or stop sending them."""
        from parley.engine.side.suggestion import Suggester

        self.suggester = Suggester(self.config, self.outbox, self.journal, self.prompt_queue) if enabled else None

    def send_init(self) -> None:
        """Send `system/init`, as at the start of every turn."""
        self.outbox.send(init_message(self.conversation, self.servers, self.commands))

    # Messages of the client.

    def handle(self, message: Message) -> None:
        """Dispatch a message of the client."""
        handler = HANDLERS.get(type(message))
        if handler is None:
            self.config.warn(f"{type(message).__name__} is ignored")
        else:
            handler(self, message)

    def _receive_prompt(self, message: User) -> None:
        if has_tool_results(message):
            rest = self.get_client_tools().receive_results(message)
            if rest is None:
                return
            message = rest
        prompt = self.prompts.make(message)
        if prompt is None:
            return
        self.resumed_turn.enqueue()  # for clients without a handshake
        if self.main_agent is not None:
            prompt = self.main_agent.with_initial_prompt(prompt)
        prompt = self.commands.mark_local(prompt)
        self.prompts.send_lifecycle(prompt, "queued")
        if message.shouldQuery is False:
            self.prompts.add_silent(prompt)
            if not (self.is_running or self.control.is_changing or len(self.prompt_queue)):
                self.prompts.append_silent()
            return
        if self.suggester is not None:
            self.suggester.cancel()
        self.prompts.queue(prompt)
        self.servers.start()  # for clients without a handshake
        self.runner.yield_to_urgent()

    def close_input(self) -> None:
        """No more input."""
        self.prompt_queue.close()
        if self.suggester is not None:
            self.suggester.cancel()
        if self.outbox.is_client_gone and self.client_tools is not None:
            self.client_tools.close()

    def _ignore(self, message: Message) -> None:
        """A message without effect."""

    def _warn_unknown(self, message: Unknown) -> None:
        self.config.warn(f"a line of the unknown type {message.kind!r} is ignored")

    def _warn_foreign(self, message: Message) -> None:
        self.config.warn("a line of the dialect miriad or jsonrpc is ignored: they are spoken with --stdio")

    def _apply_prompt_context(self, provisions: dialects.Provisions) -> None:
        from parley.engine.session.prompt_context import apply_prompt_context

        apply_prompt_context(self.conversation, provisions)

    @property
    def mode(self) -> str:
        """The permission mode."""
        return self.permission_mode.current

    def may_bypass(self) -> bool:
        return self.permission_mode.may_bypass()

    # Turns.

    @property
    def turn(self) -> Turn | None:
        """The running turn."""
        return self.runner.current

    @property
    def is_running(self) -> bool:
        return self.runner.current is not None

    @property
    def state(self) -> str:
        """`idle`, `running` or `requires_action`."""
        return self.activity.state

    async def run_turns(self) -> None:
        """Run turn after turn until the input has ended and nothing waits."""
        self.outbox.send(dialects.SessionOpened(client_tools=[tool.name for tool in self.config.client.tools]))
        try:
            await self.runner.run()
        finally:
            await self._close()

    async def _close(self) -> None:
        """Close every part, also when the task is cancelled: the process may outlive the session."""
        if self.hooks.dispatcher is not None:
            await self.hooks.dispatcher.turn_hooks.end_session("other")
        if self.suggester is not None:
            await self.suggester.close()
        self.tasks.end()
        await self.tasks.wait_closed()
        if self.subagents is not None:
            await self.subagents.worktrees.close()
        if self.memory_worker is not None:
            await self.memory_worker.close()
        await self.control.close()
        await self.servers.close()
        await self.config.tool_context.processes.close()
        self.config.tool_context.files.close()
        await self.models.close()
        self.config.observer.close()

    def abort(self) -> None:
        """Stop the running turn, or the next one, and the memory worker."""
        if self.memory_worker is not None:
            self.memory_worker.stop()
        self.runner.abort()

    def stop(self) -> None:
        """End after the result of the running turn. Waiting prompts are cancelled. For signals."""
        self.abort()
        for prompt in self.prompts.list_queued():
            self.prompts.cancel(prompt)
        self.tasks.end()
        self.control.cancel_pending()
        self.close_input()

    def abandon(self) -> None:
        """End at once, because the client is gone. Commands are killed."""
        self.outbox.is_client_gone = True
        self.stop()
        self.config.tool_context.processes.hurry()

    def open_model(self, choice: ModelRef) -> Model:
        """Raises UsageError or ModelError."""
        return self.models.open(choice)


HANDLERS: dict[type[Message], Callable[[Session, Any], None]] = {
    User: Session._receive_prompt,
    ControlRequest: lambda session, message: session.control.receive(message),
    ControlCancelRequest: lambda session, message: session.control.cancel(message),
    Refused: lambda session, message: session.control.reject(message),
    Unknown: Session._warn_unknown,
    KeepAlive: Session._ignore,
    UpdateEnvironment: Session._ignore,
    dialects.Control: Session._warn_foreign,
    dialects.Provisions: Session._apply_prompt_context,
    dialects.HostThere: lambda session, message: session.resumed_turn.enqueue(),
    dialects.Withdrawal: lambda session, message: session.runner.cancel_prompt(message.user_message_uuid),
    dialects.JsonRpc: Session._warn_foreign,
}
