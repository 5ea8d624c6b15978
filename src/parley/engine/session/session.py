"""One live session: builds its parts, holds them, and dispatches messages to them.

    handle(message)    dispatches a message of the client; never waits for a turn
    run_turns()        runs turn after turn, until the input has ended and nothing waits
    close_input()      no more input; running and waiting turns are finished

See also: `pump.py` connects it with the client, `turn/runner.py` runs the turns, `control/dispatcher.py` answers
control requests, `compose/` builds the configuration.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Protocol

from parley.engine.accounting.ledger import Ledger, SpendingLimits
from parley.engine.approval.gate import ApprovalGate, SessionMode
from parley.engine.approval.grants import Grants
from parley.engine.approval.request import ApprovalChannel, Approver, PendingApprovals, RecordingHost
from parley.engine.commands.commands import Commands
from parley.engine.context.conversation import Conversation, ConversationServices, ModelPool
from parley.engine.hooks.registry import HookRegistry
from parley.engine.mcp.manager import ServerManager
from parley.engine.session.config import SessionConfig
from parley.engine.session.journal import Journal
from parley.engine.session.outbox import Activity, Outbox
from parley.engine.session.prompts import NOTIFICATION, Prompt, PromptIntake, PromptQueue, has_tool_results
from parley.engine.side.query import QueryModels, SideQuery
from parley.engine.tasks.manager import TaskManager
from parley.engine.turn.runner import TurnRunner
from parley.engine.turn.tool_executor import ToolExecutor
from parley.errors import SessionError
from parley.host import Host
from parley.models.base import Model
from parley.models.catalog import ModelRef
from parley.protocol.base import UNSET, Json, Message, Refused, Unknown
from parley.protocol.capabilities import CAPABILITIES
from parley.protocol.messages import dialects
from parley.protocol.messages.control import ControlCancelRequest, ControlRequest, UpdateEnvironment
from parley.protocol.messages.conversation import User
from parley.protocol.messages.notices import KeepAlive
from parley.protocol.messages.result import Denial
from parley.protocol.messages.system import Informational, Init
from parley.tools.base import Context, SessionServices, make_context, tool_schema
from parley.version import PROTOCOL_LEVEL, __version__
from parley.workspace.base import Scope

if TYPE_CHECKING:
    from parley.engine.agents.main_agent import MainAgent
    from parley.engine.agents.resources import AgentEnvironment
    from parley.engine.agents.subagents import Subagents
    from parley.engine.agents.worktrees import SessionWorktree
    from parley.engine.goal import SessionGoal
    from parley.engine.hooks.dispatcher import HookDispatcher
    from parley.engine.recovery.resumed_turn import ResumedTurn
    from parley.engine.schedule.scheduler import Scheduler
    from parley.engine.side.suggestion import Suggester
    from parley.engine.turn.client_tools import ClientTools
    from parley.engine.turn.turn import Turn
    from parley.hooks.base import HookServices
    from parley.memory.base import MemoryWorker

PLAN_RULE = "You are in plan mode: read and search as much as you need, and change nothing."
PLAN_END = "When the plan is ready, present it with ExitPlanMode."


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


class ClientDeclarations:
    """What the client declared in `initialize` about itself and the session, as far as no other part keeps it."""

    def __init__(self) -> None:
        self.title = ""
        """The title of a new session."""
        self.plan_instructions = ""
        """What to do in plan mode, instead of our own advice."""
        self.summarizes_agents = False
        """Running subagents report what they do."""
        self.can_stop_tasks: bool | None = None
        """Whether the client can stop single tasks; None before the handshake."""
        self._knows_plan = False
        """Whether the model was given the instructions since the session went into plan mode."""

    def describe_plan_mode(self, context: Context) -> str:
        """The client's instructions for plan mode, between ours; empty if it has none."""
        if not self.plan_instructions:
            return ""
        self._knows_plan = True
        place = f" You may write it to {context.plan_file} first." if context.plan_file else ""
        return f"{PLAN_RULE}\n\n{self.plan_instructions}\n\n{PLAN_END}{place}"

    def plan_news(self, mode: str, context: Context) -> list[str]:
        """What the model has to know at the start of a turn: the instructions, if it does not have them yet."""
        if mode != "plan":
            self._knows_plan = False
        if mode != "plan" or self._knows_plan or not self.plan_instructions:
            return []
        return [self.describe_plan_mode(context)]


class Session:
    def __init__(self, config: SessionConfig, host: Host, make_control: Callable[[Session], Control]) -> None:
        self.config = config
        self.clock = config.clock
        self.limits = config.limits
        self.started_at = config.clock.monotonic()
        self.forwards_subagent_text = config.options.forward_subagent_text
        self.outbox = Outbox(config.identity, config.clock, host, config.client.state_events)
        for text in config.notices:
            self.outbox.add_notice(text)
        self.activity = Activity(self.outbox)
        self.declared = ClientDeclarations()
        self.prompt_queue = PromptQueue()
        self.control = make_control(self)

        # The log, and the state that follows from it.
        grants, storage = Grants(config.identity, config.cwd), config.storage
        self.journal = Journal(
            storage.log, config.clock, grants, config.options.fsync, sync_in_background=storage.sync_in_background
        )
        self.journal.report_lost = self.outbox.send_lost_write
        get_info = cache(lambda name: config.model.get_info(config.model.resolve(name)))
        limits = SpendingLimits.from_options(config.options)
        self.ledger = Ledger(config.model.prices, limits, config.clock.monotonic, get_info)
        pending = PendingApprovals(self.journal, config.clock.new_uuid)
        self.journal.load(self.ledger, config.warn)
        grants.restore(config.permissions.policy, config.warn)

        # What a conversation needs: hooks, models, tools and the permission to run them.
        self.hooks = self._make_hooks(pending)
        self.models = ModelPool(config.model.open, config.observer)
        self.tasks = TaskManager(config, self.outbox, self.journal, self.prompt_queue)
        self.servers = ServerManager(
            config, self.outbox, self.journal, self.prompt_queue, self.activity.waiting, self.hooks
        )
        self.permission_mode = SessionMode(config.permissions, config.settings, self.journal, self.outbox, config.warn)
        self.gate = self._make_gate(pending)
        self.side_query = self._make_side_query()
        self.tool_executor = ToolExecutor(config.tools, self.gate, self._make_tool_context(), self.hooks, config.warn)
        self.memory_worker = self._make_memory_worker()
        self.conversation = self._make_conversation()

        # What enters the conversation.
        self.prompts = PromptIntake(
            config, self.journal, self.outbox, self.prompt_queue, self.activity, self.conversation.mode
        )
        self.commands = Commands(
            self.conversation, self.servers, self.prompt_queue, self.prompts, self.send_init, self.started_at
        )
        self.resumed_turn = self._find_resumed_turn()
        self.runner = TurnRunner(self)

        # Parts that few sessions have.
        self.subagents: Subagents | None = None
        self.client_tools: ClientTools | None = None
        self.suggester: Suggester | None = None
        self.main_agent: MainAgent | None = None
        """The agent that the session runs as, if any."""
        self._apply_config()

    def _apply_config(self) -> None:
        """Load the parts that the configuration asks for."""
        config = self.config
        self.commands.register_tool()
        self.hooks.add_extensions()
        if config.settings is not None:
            self.hooks.set_commands(config.settings.merged)
        if config.client.tools:
            self.get_client_tools().declare(config.client.tools)
        if config.options.prompt_suggestions:
            self.enable_suggestions(True)
        if config.agents.main is not None:
            from parley.engine.agents.main_agent import MainAgent

            self.main_agent = MainAgent(self._agent_environment(), self.permission_mode, config.agents.main)

    def _make_hooks(self, pending: PendingApprovals) -> HookRegistry:
        config = self.config
        recording = RecordingHost(self.outbox.host, pending, config.limits.max_line_bytes, config.warn)
        return HookRegistry(config, recording, self._make_dispatcher, self._make_hook_services, self.outbox.add_notice)

    def _make_hook_services(self) -> HookServices:
        from parley.engine.hooks.services import SessionHookServices

        return SessionHookServices(self.conversation, self.side_query, self.servers, self._make_silent_gate)

    def _make_side_query(self) -> SideQuery:
        models = QueryModels(
            open=self.models.open,
            current=lambda: self.conversation.model,
            small=self.config.model.resolve(self.config.model.small),
            get_info=self.config.model.get_info,
        )
        return SideQuery(models, self.ledger, self.clock.monotonic, self.config.identity)

    def _make_tool_context(self) -> Context:
        """What the session's own tools work with. What does not exist yet is looked up at the call."""
        config = self.config
        services = SessionServices(
            tasks=self.tasks,
            models=self.side_query,
            open_agents=lambda: self.get_subagents().calls_of(None),
            run_skill=lambda name, arguments: self.commands.run_skill(name, arguments),  # noqa: PLW0108  # made later
            resource_servers=self.servers.resource_servers,
            pending_servers=self.servers.pending,
            deferred_tools=lambda: self.conversation.find_deferral(),  # noqa: PLW0108  # made later
            set_mode=self.permission_mode.change,
            open_schedule=lambda: self.scheduler,
            open_worktrees=lambda: self.worktree,
            open_goal=lambda: self.goal,
            describe_plan_mode=self.declared.describe_plan_mode,
            open_memory=config.open_memory,
            in_view=lambda: frozenset((self.id, entry.seq) for entry in self.journal.history.list_entries()),
            ask_host=self._ask_about_host,
            report_refusal=lambda text: self.outbox.send(Informational(content=text, level="warning")),
            must_read_first=lambda: config.model.get_info(self.conversation.model).must_read_first,
        )
        context = make_context(config.workspace, config.cwd, services, config.permissions.policy.is_hidden)
        return context if config.worktree is None else context.move_to(config.worktree)

    async def _ask_about_host(self, host: str, port: int) -> bool:
        from parley.engine.approval.hosts import ask_about_host

        call_id = f"toolu_{self.config.workspace.new_id()}"
        return await ask_about_host(self.gate, host, port, call_id)

    def _make_conversation(self) -> Conversation:
        services = ConversationServices(
            ledger=self.ledger,
            models=self.models,
            hooks=self.hooks,
            mode=lambda: self.mode,
            memory_worker=self.memory_worker,
            open_goal=lambda: self.goal,
        )
        return Conversation(self.config, self.journal, self.outbox.host.send, self.tool_executor, services)

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
                resolve_model=self.config.model.resolve,
                warn=self.config.warn,
            )
        )

    def _make_dispatcher(self) -> HookDispatcher:
        from parley.engine.hooks.dispatcher import HookDispatcher
        from parley.engine.hooks.session_hooks import SessionActions, SessionState

        def get_state() -> SessionState:
            return SessionState(
                mode=self.mode,
                cwd=self.conversation.tool_context.state.cwd,
                model=self.conversation.model.display_name,
                effort=self.conversation.effort,
                agent={} if self.main_agent is None else self.main_agent.hook_fields,
                title=self.journal.title,
            )

        actions = SessionActions(
            set_title=lambda title: self.journal.append_event("title", {"title": title}),
            wake=self._wake,
            reload_skills=self.commands.reload,
        )
        return HookDispatcher(self.config, self.outbox, self.tasks, get_state, actions)

    def _wake(self, text: str) -> None:
        """Give the model the text of a hook, in a turn of its own if none runs."""
        origin = {"kind": NOTIFICATION, "producer": "hook"}
        content = [{"type": "text", "text": text}]
        self.prompts.queue(Prompt(content=content, uuid=self.clock.new_uuid(), origin=origin, verbatim=True))

    def _make_silent_gate(self) -> ApprovalGate:
        """A gate that asks no one: what rules and mode do not allow is denied."""
        return self._make_gate(PendingApprovals(self.journal, self.clock.new_uuid), asks=False)

    def _make_gate(self, pending: PendingApprovals, *, asks: bool = True) -> ApprovalGate:
        config = self.config
        channel = ApprovalChannel(self._find_approver() if asks else None, self.outbox, self.activity, pending)
        return ApprovalGate(config.permissions, channel, self.journal, self.permission_mode, self.hooks, config.warn)

    def _find_approver(self) -> Approver | None:
        """An MCP tool, the client, or None if requests are denied."""
        config = self.config.permissions
        if config.prompt_tool is not None:
            from parley.engine.approval.mcp_prompt_tool import PromptTool

            return PromptTool(config.prompt_tool, self.servers)
        return self.outbox.host if config.asks_host else None

    def _agent_environment(self) -> AgentEnvironment:
        from parley.engine.agents.resources import AgentEnvironment

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
            summarizes=lambda: self.side_query if self.declared.summarizes_agents else None,
            add_denials=add_denials,
        )

    def get_subagents(self) -> Subagents:
        """The subagents; loaded at the first use."""
        if self.subagents is None:
            from parley.engine.agents.subagents import Subagents

            self.subagents = Subagents(self._agent_environment())
        return self.subagents

    @cached_property
    def scheduler(self) -> Scheduler:
        """The scheduled prompts; loaded at the first use."""
        from parley.engine.schedule.scheduler import Scheduler

        return Scheduler(self.journal, self.prompt_queue, self.clock, self.config.warn)

    @cached_property
    def goal(self) -> SessionGoal:
        """The goal of the session; loaded at the first use."""
        from parley.engine.goal import SessionGoal, make_judge

        return SessionGoal(self.conversation, make_judge(self.side_query.ask_small), self.tasks, self.prompt_queue)

    @cached_property
    def worktree(self) -> SessionWorktree:
        """The session's own worktree; loaded at the first use."""
        from parley.engine.agents.worktrees import SessionWorktree

        return SessionWorktree(self.config, self.journal, self.tool_executor, self.hooks)

    def _resume(self) -> None:
        """Continue with what an earlier process of the session left: scheduled prompts, and the worktree it is in."""
        # A fork shares neither with the session that it comes from.
        if self.config.storage.start_source == "fork":
            self.journal.schedule = self.journal.worktree = None
        if self.journal.schedule is not None:
            self.scheduler.resume()
        if self.journal.worktree is not None:
            self.worktree.resume()

    @cached_property
    def plugins(self) -> tuple[list[Json], list[Json]]:
        """The loaded plugins, and what is wrong with the others."""
        return self.config.extensions.list_plugins()

    def forget_plugins(self) -> None:
        """They were read again."""
        self.__dict__.pop("plugins", None)

    def _find_resumed_turn(self) -> ResumedTurn | None:
        """The turn of an earlier engine that this one continues, if there is one."""
        journal, continues = self.journal, self.config.options.resume_interrupted_turn
        # A fork leaves the open requests to the session that it was forked from.
        if self.config.storage.start_source == "fork" or journal.is_empty:
            return None
        if not (continues or journal.questions or journal.deferred_calls):
            return None
        from parley.engine.recovery.resumed_turn import ResumedTurn, find_resumed_turn

        item = find_resumed_turn(journal, continues=continues)
        return None if item is None else ResumedTurn(item, journal, self.prompt_queue, self.outbox)

    def resume_turn(self) -> None:
        """Continue the turn of an earlier engine. Called when the client is there."""
        if self.resumed_turn is not None:
            self.resumed_turn.enqueue()

    def get_client_tools(self) -> ClientTools:
        """The tools that the client runs; loaded at the first use."""
        if self.client_tools is None:
            from parley.engine.turn.client_tools import ClientTools

            self.client_tools = ClientTools(
                self.config, self.journal, self.outbox, self.activity, self.prompt_queue, self.resume_turn
            )
        return self.client_tools

    def enable_suggestions(self, enabled: bool) -> None:
        """Send suggestions for the next prompt, or stop sending them."""
        from parley.engine.side.suggestion import Suggester

        self.suggester = (
            Suggester(self.config, self.outbox, self.journal, self.prompt_queue, self.side_query) if enabled else None
        )

    def send_init(self) -> None:
        """Send `system/init`, as at the start of every turn."""
        self.outbox.send(self._make_init())
        self.outbox.send_notices()
        self.config.workspace.processes.watch(self._report_workspace)

    def _report_workspace(self, text: str) -> None:
        """Tell the client that the machine with the files is lost, or back."""
        self.outbox.add_notice(text, "workspace")
        self.outbox.send_notices()

    def _make_init(self) -> Init:
        """The facts of the session."""
        config, conversation, commands = self.config, self.conversation, self.commands
        plugins, plugin_errors = self.plugins
        return Init(
            cwd=conversation.tool_context.state.cwd,
            tools=self._list_tools(),
            mcp_servers=self.servers.states(),
            model=conversation.model.display_name,
            permissionMode=self.mode,
            slash_commands=commands.list_names(),
            apiKeySource=config.model.api_key_source,
            claude_code_version=PROTOCOL_LEVEL,
            parley_version=__version__,
            output_style=config.extensions.output_style,
            agents=list(config.agents.registry.definitions),
            skills=[recipe.name for recipe in commands.skills()],
            plugins=plugins,
            plugin_errors=plugin_errors or UNSET,
            betas=list(config.options.betas) or UNSET,
            capabilities=list(CAPABILITIES),
            analytics_disabled=True,
            product_feedback_disabled=True,
            original_cwd=config.cwd,
            additional_directories=self._list_other_folders(),
            fast_mode_state="off",
            effort=conversation.effort or UNSET,
            view_mode="default",
            sandbox=UNSET if (sandbox := config.workspace.find_sandbox(Scope())) is None else sandbox.describe(),
        )

    def _list_other_folders(self) -> list[str]:
        """The working directories outside the one that the session started in."""
        config = self.config
        inside = os.path.join(config.cwd, "")
        return [folder for folder in config.permissions.policy.list_folders() if not f"{folder}/".startswith(inside)]

    def _list_tools(self) -> list[Any]:
        """The names of the tools, or their schemas if the client asks for them."""
        names = self.conversation.tool_names()
        if not self.config.client.include_tool_schemas:
            return list(names)
        # The model knows some tools by another name than the listed one.
        return [{**tool_schema(self.config.tools[name]), "name": name} for name in names]

    # Messages of the client.

    def handle(self, message: Message) -> None:
        """Dispatch a message of the client."""
        handler = HANDLERS.get(type(message))
        if handler is None:
            self.config.warn(f"a {type(message).__name__} message from the client is ignored")
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
        self.resume_turn()  # for clients without a handshake
        if self.main_agent is not None:
            prompt = self.main_agent.with_initial_prompt(prompt)
        prompt = self.commands.mark_alone(prompt)
        self.prompts.send_lifecycle(prompt, "queued")
        if message.shouldQuery is False:
            self.prompts.add_silent(prompt)
            if not (self.is_running or self.control.is_changing or len(self.prompt_queue)):
                self.append_silent()
            return
        if self.suggester is not None:
            self.suggester.cancel()
        self.prompts.queue(prompt)
        self.servers.start()  # for clients without a handshake
        self.runner.yield_to_urgent()

    def append_silent(self) -> None:
        """Append the prompts that start no turn. Called when no turn runs."""
        silent = self.prompts.take_silent()
        if not silent:
            return
        try:
            self.conversation.close_interrupted_calls()
            self.prompts.append(silent, silent=True)
        except SessionError as exc:
            self.config.warn(str(exc))
        for prompt in silent:
            self.prompts.send_lifecycle(prompt, "completed")

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
        self.config.warn("a line of the dialect miriad or jsonrpc is ignored: these dialects require --stdio")

    def _apply_prompt_context(self, provisions: dialects.Provisions) -> None:
        from parley.engine.session.prompt_context import apply_prompt_context

        apply_prompt_context(self.conversation, provisions)

    @property
    def id(self) -> str:
        return self.config.identity.id

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
            self._resume()
            await self.runner.run()
        finally:
            await self._close()

    async def _close(self) -> None:
        """Close every part, also when the task is cancelled: the process may outlive the session."""
        if self.hooks.dispatcher is not None:
            await self.hooks.dispatcher.turn_hooks.end_session("other")
        if self.suggester is not None:
            await self.suggester.close()
        if self.journal.schedule is not None:
            self.scheduler.close()
        self.tasks.end()
        await self.tasks.wait_closed()
        if self.subagents is not None:
            await self.subagents.worktrees.close()
        if self.memory_worker is not None:
            await self.memory_worker.close()
        await self.control.close()
        await self.servers.close()
        await self.config.workspace.processes.close()
        self.config.workspace.files.close()
        await self.models.close()
        self.config.observer.close()

    def abort(self) -> None:
        """Stop the running turn, or the next one, and the memory worker."""
        if self.memory_worker is not None:
            self.memory_worker.stop()
        self.runner.abort()

    def interrupt(self) -> None:
        """Stop the running turn for the client, and the background agents if it has no other way to stop them."""
        self.abort()
        if self.declared.can_stop_tasks is False:
            self.tasks.stop_agents()

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
        self.config.workspace.processes.hurry()

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
    dialects.HostThere: lambda session, message: session.resume_turn(),
    dialects.Withdrawal: lambda session, message: session.runner.cancel_prompt(message.user_message_uuid),
    dialects.JsonRpc: Session._warn_foreign,
}
