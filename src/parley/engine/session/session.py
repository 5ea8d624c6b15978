"""One live session: builds its parts, holds them, and dispatches messages to them.

    handle(message)    dispatches a message of the client; never waits for a turn
    run_turns()        runs turn after turn, until the input has ended and nothing waits
    close_input()      no more input; running and waiting turns are finished

See also: `pump.py` connects it with the client, `turn/runner.py` runs the turns, `control/dispatcher.py` answers
control requests, `compose/` builds the configuration.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from parley.engine.approval.gate import ApprovalGate, SessionMode
from parley.engine.approval.request import ApprovalChannel, Approver, PendingApprovals, RecordingHost
from parley.engine.commands.commands import Commands
from parley.engine.context.conversation import ClientDeclarations, Conversation, SessionParts
from parley.engine.context.models import ModelPool, ModelSelection, SideQuery
from parley.engine.control.dispatcher import ControlDispatcher
from parley.engine.hooks.registry import HookRegistry, SessionEvents
from parley.engine.ledger import Ledger, SpendingLimits
from parley.engine.mcp.manager import ServerManager
from parley.engine.session.config import SessionConfig
from parley.engine.session.journal import Grants, Journal
from parley.engine.session.outbox import Activity, Outbox
from parley.engine.session.prompts import PromptIntake, PromptQueue, Recovery, has_tool_results
from parley.engine.tasks.manager import TaskManager
from parley.engine.turn.runner import TurnRunner
from parley.engine.turn.tool_executor import ToolExecutor
from parley.errors import SessionError
from parley.host import Host
from parley.protocol.base import UNSET, Json, Message, Refused, Unknown
from parley.protocol.messages import dialects
from parley.protocol.messages.control import ControlCancelRequest, ControlRequest, UpdateEnvironment
from parley.protocol.messages.conversation import User
from parley.protocol.messages.notices import KeepAlive
from parley.protocol.messages.system import CAPABILITIES, Informational, Init
from parley.tools.base import SessionServices, make_context, tool_schema
from parley.version import PROTOCOL_LEVEL, __version__
from parley.workspace.base import Scope

if TYPE_CHECKING:
    from parley.engine.agents.setup import MainAgent
    from parley.engine.agents.subagents import Subagents
    from parley.engine.agents.worktrees import SessionWorktree
    from parley.engine.goal import SessionGoal
    from parley.engine.session.suggestion import Suggester
    from parley.engine.tasks.wakeups import Scheduler
    from parley.engine.turn.client_tools import ClientTools
    from parley.engine.turn.turn import Turn


class Session:
    def __init__(self, config: SessionConfig, host: Host) -> None:
        self.config = config = config.with_mirrors(host.send)
        self.clock = clock = config.clock
        self.limits = config.limits
        self.started_at = clock.monotonic()

        # The parts: each works with those above it.
        self.outbox = Outbox(config.identity, clock, host, config.client.state_events)
        self.activity = Activity(self.outbox)
        self.declared = ClientDeclarations(
            forwards_text=config.options.forward_subagent_text, knows_plan=config.permissions.mode == "plan"
        )
        self.prompt_queue = PromptQueue()
        self.journal = Journal(
            config.storage.log,
            clock,
            Grants(config.identity, config.cwd),
            config.options.fsync,
            sync_in_background=config.storage.sync_in_background,
        )
        self.journal.report_lost = self.outbox.send_lost_write
        limits = SpendingLimits.from_options(config.options)
        self.ledger = Ledger(
            config.model.prices,
            limits,
            clock.monotonic,
            lambda name: config.model.get_info(config.model.resolve(name)),
        )
        self.recovery = self._recover()
        self.journal.grants.restore(config.permissions.policy, config.warn)
        pending = PendingApprovals(self.journal, clock.new_uuid)
        recording = RecordingHost(host, pending, config.limits.max_line_bytes, config.warn)
        self.hooks = HookRegistry(config, recording, self.outbox, self._open_events)
        self.tasks = TaskManager(config, self.outbox, self.journal, self.prompt_queue)
        self.servers = ServerManager(
            config, self.outbox, self.journal, self.prompt_queue, self.activity.waiting, self.hooks
        )
        self.permission_mode = SessionMode(config.permissions, config.settings, self.journal, self.outbox, config.warn)
        self.gate = self._make_gate(pending, self._find_approver())
        selection = ModelSelection(config.model.resolve(config.model.name), self.permission_mode.get)
        self.models = ModelPool(config.model.open, config.observer, config.model.discover)
        self.side_query = SideQuery(
            self.models,
            selection,
            config.model.resolve(config.model.small),
            self.ledger,
            config.identity,
            get_info=config.model.get_info,
        )
        context = make_context(config.workspace, config.cwd, SessionServices(), config.permissions.policy.is_hidden)
        self.tool_executor = ToolExecutor(config.tools, self.gate, context, self.hooks, config.warn)
        self.conversation = Conversation(
            config, self.journal, self.outbox.host.send, self.tool_executor, self._collect_parts(), selection
        )
        self.prompts = PromptIntake(
            config, self.journal, self.outbox, self.prompt_queue, self.activity, self.permission_mode.get
        )
        self.commands = Commands(self.conversation, self.prompts, self.send_init, self.started_at)
        self.runner = TurnRunner(self)
        self.control = ControlDispatcher(self)

        # Parts that few sessions have.
        self.subagents: Subagents | None = None
        self.client_tools: ClientTools | None = None
        self.suggester: Suggester | None = None
        self.main_agent: MainAgent | None = None
        """The agent that the session runs as, if any."""
        self._connect()

    def _collect_parts(self) -> SessionParts:
        return SessionParts(
            config=self.config,
            outbox=self.outbox,
            activity=self.activity,
            prompt_queue=self.prompt_queue,
            declared=self.declared,
            ledger=self.ledger,
            models=self.models,
            side_query=self.side_query,
            hooks=self.hooks,
            mode=self.permission_mode,
            gate=self.gate,
            tasks=self.tasks,
            servers=self.servers,
        )

    def _connect(self) -> None:
        """Connect the parts, and load those that the configuration asks for."""
        config, context = self.config, self.tool_executor.context
        context = replace(context, session=self._make_services())
        self.tool_executor.context = context if config.worktree is None else context.move_to(config.worktree)
        self.memory_worker = None if config.make_memory is None else config.make_memory(self.conversation)
        self.conversation.memory_worker = self.memory_worker
        for text in config.notices:
            self.outbox.add_notice(text)
        self.commands.register_tool()
        self.hooks.add_extensions()
        self.hooks.set_commands(config.settings.merged)
        if config.client.tools:
            self.get_client_tools().declare(config.client.tools)
        if config.options.prompt_suggestions:
            self.enable_suggestions(True)
        if config.agents.main is not None:
            from parley.engine.agents.setup import MainAgent

            self.main_agent = MainAgent(self.conversation, self.commands, config.agents.main)

    def _set_mode(self, mode: str | None) -> None:
        """Change the mode for a tool of the model, which then knows of it."""
        self.permission_mode.change(mode)
        self.declared.knows_plan = self.mode == "plan"

    def _make_services(self) -> SessionServices:
        """What the session offers its tools. What few sessions have is loaded at the first use."""
        config, conversation = self.config, self.conversation
        return SessionServices(
            tasks=self.tasks,
            models=self.side_query,
            open_agents=lambda: self.get_subagents().calls_of(None),
            run_skill=self.commands.run_skill,
            resource_servers=self.servers.resource_servers,
            pending_servers=self.servers.pending,
            deferred_tools=conversation.find_deferral,
            has_result=conversation.has_result,
            set_mode=self._set_mode,
            open_schedule=lambda: self.scheduler,
            open_worktrees=lambda: self.worktree,
            open_goal=self._open_goal,
            describe_plan_mode=self.declared.describe_plan_mode,
            open_memory=config.open_memory,
            in_view=lambda: frozenset((self.id, entry.seq) for entry in self.journal.history.list_entries()),
            ask_host=self._ask_about_host,
            report_refusal=lambda text: self.outbox.send(Informational(content=text, level="warning")),
            must_read_first=lambda: config.model.get_info(conversation.model).must_read_first,
        )

    def _open_goal(self) -> SessionGoal:
        from parley.engine.goal import SessionGoal

        return SessionGoal(self.conversation)

    async def _ask_about_host(self, host: str, port: int) -> bool:
        return await self.gate.ask_about_host(host, port, f"toolu_{self.config.workspace.new_id()}")

    def _open_events(self) -> SessionEvents:
        """What runs the hooks; loaded with the first."""
        from parley.engine.hooks.runner import SessionHookServices
        from parley.engine.hooks.turn_hooks import HookDispatcher

        # The agents of hooks ask no one: what rules and mode do not allow is denied.
        silent = self._make_gate(PendingApprovals(self.journal, self.clock.new_uuid), None)
        services = SessionHookServices(self.conversation, silent)
        return HookDispatcher(self.conversation, self.prompts, self.commands, services)

    def _make_gate(self, pending: PendingApprovals, approver: Approver | None) -> ApprovalGate:
        config = self.config
        channel = ApprovalChannel(approver, self.outbox, self.activity, pending)
        return ApprovalGate(config.permissions, channel, self.journal, self.permission_mode, self.hooks, config.warn)

    def _find_approver(self) -> Approver | None:
        """An MCP tool, the client, or None if requests are denied."""
        config = self.config.permissions
        if config.prompt_tool is not None:
            from parley.engine.mcp.server_tool import PromptTool

            return PromptTool(config.prompt_tool, self.servers)
        return self.outbox.host if config.asks_host else None

    def get_subagents(self) -> Subagents:
        """The subagents; loaded at the first use."""
        if self.subagents is None:
            from parley.engine.agents.subagents import Subagents

            self.subagents = Subagents(self.conversation, self.commands)
        return self.subagents

    @cached_property
    def scheduler(self) -> Scheduler:
        """The scheduled prompts; loaded at the first use."""
        from parley.engine.tasks.wakeups import Scheduler

        return Scheduler(self.journal, self.prompt_queue, self.clock, self.config.warn)

    @cached_property
    def worktree(self) -> SessionWorktree:
        """The session's own worktree; loaded at the first use."""
        from parley.engine.agents.worktrees import SessionWorktree

        return SessionWorktree(self.conversation)

    def _recover(self) -> Recovery:
        """Fold the log. Returns what an earlier engine left."""
        entries = self.journal.log.entries()
        if (first := next(entries, None)) is None:
            return Recovery()
        from parley.engine.session.recover import recover

        config = self.config
        is_fork, continues = config.storage.start_source == "fork", config.options.resume_interrupted_turn
        stored = chain((first,), entries)  # a file is verified each time that it is read
        return recover(self.journal, stored, self.ledger, config.warn, continues=continues, is_fork=is_fork)

    def _resume(self) -> None:
        """Continue with the scheduled prompts, and in the worktree, of an earlier process."""
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

    def resume_turn(self) -> None:
        """Continue the turn of an earlier engine before anything else. Called when the client is there."""
        turn, self.recovery = self.recovery.turn, replace(self.recovery, turn=None)
        if turn is not None:
            self.prompt_queue.put(turn)

    def report_losses(self) -> list[str]:
        """Report what ended with an earlier engine, once. Returns the texts for the model. Raises SessionError."""
        left, self.recovery = self.recovery, Recovery(turn=self.recovery.turn)
        if not (left.undelivered or left.unread or left.lost_tasks or left.elicitations):
            return []
        from parley.engine.session.recover import report_questions, report_tasks

        news = report_tasks(left, self.clock, self.tasks.get_notifications())
        return [*news, *report_questions(left, self.journal, self.outbox)]

    def get_client_tools(self) -> ClientTools:
        """The tools that the client runs; loaded at the first use."""
        if self.client_tools is None:
            from parley.engine.turn.client_tools import ClientTools

            self.client_tools = ClientTools(self.conversation, self.resume_turn)
        return self.client_tools

    def enable_suggestions(self, enabled: bool) -> None:
        """Send suggestions for the next prompt, or stop sending them."""
        from parley.engine.session.suggestion import Suggester

        self.suggester = Suggester(self.conversation) if enabled else None

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
        from parley.engine.session.dialect_fields import apply_prompt_context

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
        await self.hooks.events.end_session("other")
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
