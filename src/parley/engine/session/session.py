"""One live session: its parts, its state, one handler a message.

    handle(message)   takes a line of the host; never waits for a turn
    run_turns()       the task that runs turn after turn, until nothing more will come
    finish()          no more input: what runs and what waits is still done

A line is in the log before it is told (context/conversation.py).

Not here: bytes and pipes (pump.py), one turn after the other (turn/runner.py), what becomes of
a prompt (prompts.py), how requests are answered (control/dispatcher.py, control/handlers/session.py), the log and
what follows from it (journal.py), which models, tools and stores there are (compose/).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from parley.engine.accounting.ledger import Ledger
from parley.engine.approval.gate import asker_for
from parley.engine.approval.grants import Grants, Mode
from parley.engine.commands.commands import Commands
from parley.engine.context.conversation import Conversation
from parley.engine.control.dispatcher import Control
from parley.engine.hooks.registry import Listeners
from parley.engine.mcp.manager import Servers
from parley.engine.models.pool import Access
from parley.engine.recovery.pending_approvals import Questions, Unfinished
from parley.engine.session.config import Setup
from parley.engine.session.journal import Record
from parley.engine.session.prompt_queue import Inbox
from parley.engine.session.prompts import Prompts
from parley.engine.side.query import lend
from parley.engine.tasks.manager import Tasks
from parley.engine.turn.runner import Turns
from parley.engine.turn.tool_executor import Caller
from parley.engine.turn.turn import Turn
from parley.host import Host
from parley.models.base import Model
from parley.models.catalog import Choice
from parley.protocol.base import UNSET, Message, Refused, Unknown
from parley.protocol.messages import dialects
from parley.protocol.messages.control import ControlCancelRequest, ControlRequest, UpdateEnvironment
from parley.protocol.messages.conversation import User
from parley.protocol.messages.notices import KeepAlive
from parley.protocol.messages.system import SessionStateChanged
from parley.tools.base import Result as ToolResult

if TYPE_CHECKING:
    from parley.engine.agents.main_agent import Lead
    from parley.engine.agents.subagents import Subagents
    from parley.engine.memory.worker import Remembering
    from parley.engine.side.suggestion import Suggester
    from parley.engine.turn.client_tools import ClientTools


class Session:
    def __init__(self, setup: Setup, host: Host) -> None:
        self.id = setup.session_id
        self.setup = setup
        self.host = host
        self.stamp = setup.stamp
        self.limits = setup.limits
        self.begun = setup.stamp.monotonic()
        self.record = Record(setup.log, setup.stamp, Grants(setup.session_id, setup.cwd), setup.sync)
        self.ledger = Ledger(setup.prices, setup.limits.budget, setup.stamp.monotonic)
        self.inbox = Inbox()
        self.prompts = Prompts(self)
        self.commands = Commands(self)
        self.control = Control(self)
        self.listeners = Listeners()
        self.has_hung_up = False
        """Whether the host has closed its end: it cannot be asked any more."""
        self.access = Access(setup.open_model, setup.observer)
        self.tasks = setup.tool_context.tasks = Tasks(
            processes=setup.tool_context.processes,
            place=setup.task_place,
            stamp=setup.stamp,
            tell=self.tell,
            inbox=self.inbox,
            note=self.record.note,
            are_allowed=setup.limits.may_work_behind,
            reached=host.reached,
        )
        self.servers = Servers(self, setup.mcp)
        self.subagents: Subagents | None = None
        self.client_tools: ClientTools | None = None
        self.suggester: Suggester | None = None
        self.forwards_subagent_text = setup.forwards_subagent_text
        self.record.read(self.ledger, setup.complain)
        self.turns = Turns(self)
        self.questions = Questions(self.record, setup.stamp.new_uuid)
        self.record.grants.regain(setup.permits, setup.complain)
        self.permission_mode = Mode(self)
        self.asker = asker_for(self)
        self.caller = Caller(
            setup.tools,
            self.asker,
            setup.tool_context,
            self.record.note,
            setup.complain,
            listeners=self.listeners,
        )
        self.conversation = Conversation(
            setup,
            self.record,
            host.tell,
            ledger=self.ledger,
            caller=self.caller,
            access=self.access,
            mode=lambda: self.mode,
            listeners=self.listeners,
        )
        self.errand = lend(self, setup.tool_context)
        self.remembering = self._remembering()
        self.conversation.remembering = self.remembering
        self.commands.shelve()
        setup.tool_context.delegate = self._delegate
        setup.tool_context.send = self._send
        if setup.settings is not None:
            self.listeners.settle(self, setup.settings.merged)
        self.unfinished = Unfinished(self)
        if setup.client_tools:
            self.calls_of_client().declare(setup.client_tools)
        if setup.suggests:
            self.want_suggestions(True)
        self.lead: Lead | None = None
        """Whom the session runs as, if not as itself."""
        if setup.agent is not None:
            from parley.engine.agents.main_agent import Lead

            self.lead = Lead(self, setup.agent)

    def _remembering(self) -> Remembering | None:
        """Who looks after the memory, where there is one."""
        if self.setup.make_keeper is None:
            return None
        from parley.engine.memory.worker import Remembering

        return Remembering(self, self.setup.make_keeper)

    async def _delegate(self, call: Any, tool_use_id: str) -> ToolResult:
        return await self.helpers().delegate_for(None)(call, tool_use_id)

    async def _send(self, to: str, message: str, tool_use_id: str) -> ToolResult:
        return await self.helpers().send_for(None)(to, message, tool_use_id)

    def helpers(self) -> Subagents:
        """Those who work for the session's model; loaded when there are any."""
        if self.subagents is None:
            from parley.engine.agents.subagents import Subagents

            self.subagents = Subagents(self)
        return self.subagents

    def calls_of_client(self) -> ClientTools:
        """The calls that the client runs; loaded when it says that it runs some."""
        if self.client_tools is None:
            from parley.engine.turn.client_tools import ClientTools

            self.client_tools = ClientTools(self)
        return self.client_tools

    def want_suggestions(self, wanted: bool) -> None:
        """Whether the host wants to hear what might be said next."""
        from parley.engine.side.suggestion import Suggester

        self.suggester = Suggester(self) if wanted else None

    # Speaking.

    def tell(self, message: Message) -> None:
        """Say a line that is not part of the session's record."""
        self.host.tell(self.stamp.on(message, self.id))

    # Listening.

    def handle(self, message: Message) -> None:
        """Take a line of the host."""
        handler = HANDLERS.get(type(message))
        if handler is None:
            self.setup.complain(f"{type(message).__name__} is ignored")
        else:
            handler(self, message)

    def finish(self) -> None:
        """Nothing more will come."""
        self.inbox.close()
        if self.suggester is not None:
            self.suggester.drop()
        if self.has_hung_up and self.client_tools is not None:
            self.client_tools.hang_up()

    def _ignore(self, message: Message) -> None:
        """Known, and of no consequence."""

    def _note_unknown(self, message: Unknown) -> None:
        self.setup.complain(f"a line of the unknown type {message.kind!r} is ignored")

    def _note_foreign(self, message: Message) -> None:
        self.setup.complain("a line of the dialect miriad or jsonrpc is ignored: they are spoken with --stdio")

    def _take_provisions(self, brought: dialects.Provisions) -> None:
        from parley.engine.session.prompt_context import furnish

        furnish(self, brought)

    @property
    def mode(self) -> str:
        """The permission mode."""
        return self.permission_mode.current

    def may_bypass(self) -> bool:
        """Whether bypassPermissions is open: allowed at launch, and not disabled by settings that came later."""
        held = self.setup.settings
        return self.setup.may_bypass and (held is None or held.merged.bypass_disabled is None)

    # Turns.

    @property
    def turn(self) -> Turn | None:
        """The one that runs."""
        return self.turns.running

    @property
    def is_running(self) -> bool:
        return self.turns.running is not None

    @property
    def state(self) -> str:
        """As clients know it: `idle`, `running`, or `requires_action` while a question is open."""
        if self.asker.is_asking:
            return "requires_action"
        return "running" if self.is_running else "idle"

    async def run_turns(self) -> None:
        """Run turn after turn until the input has ended and nothing waits."""
        self.tell(dialects.SessionOpened(client_tools=[tool.name for tool in self.setup.client_tools]))
        try:
            await self.turns.run()
        finally:
            await self._close()

    async def _close(self) -> None:
        """Leave nothing behind, also when we are cancelled: the process may go on without us."""
        if self.listeners.live is not None:
            await self.listeners.live.turns.end("other")
        if self.suggester is not None:
            await self.suggester.close()
        self.tasks.end()
        await self.tasks.closed()
        if self.subagents is not None:
            await self.subagents.lodgings.closed()
        if self.remembering is not None:
            await self.remembering.close()
        await self.control.close()
        await self.servers.close()
        await self.setup.tool_context.processes.close()
        self.setup.tool_context.files.close()
        await self.access.close()
        self.setup.observer.close()

    def abort(self) -> None:
        """Stop the running turn, or the one that is about to run, and what is done behind it for the memory."""
        if self.remembering is not None:
            self.remembering.stop()
        self.turns.abort()

    def stop(self) -> None:
        """End as soon as the running turn has told its result: what waits is not begun any more. For signals."""
        self.abort()
        for prompt in self.prompts.behind():
            self.prompts.withdraw(prompt)
        self.tasks.end()
        self.control.drop()
        self.finish()

    def abandon(self) -> None:
        """End at once, for nobody reads what we say: as for a signal, and commands have no time to end politely."""
        self.has_hung_up = True
        self.stop()
        self.setup.tool_context.processes.hurry()

    def open_model(self, choice: Choice) -> Model:
        """A model, opened when it is first needed. Raises UsageError or ModelError."""
        return self.access.open(choice)

    def tell_state(self, state: str) -> None:
        who = self.setup.state_events
        if who is not None:
            self.tell(SessionStateChanged(state=state, sdk_host_only=True if who == "sdk" else UNSET))


HANDLERS: dict[type[Message], Callable[[Session, Any], None]] = {
    User: lambda session, message: session.prompts.take(message),
    ControlRequest: lambda session, message: session.control.take(message),
    ControlCancelRequest: lambda session, message: session.control.withdraw(message),
    Refused: lambda session, message: session.control.turn_away(message),
    Unknown: Session._note_unknown,
    KeepAlive: Session._ignore,
    UpdateEnvironment: Session._ignore,
    dialects.Control: Session._note_foreign,
    dialects.Provisions: Session._take_provisions,
    dialects.HostThere: lambda session, message: session.unfinished.offer(),
    dialects.Withdrawal: lambda session, message: session.turns.withdraw(message.user_message_uuid),
    dialects.JsonRpc: Session._note_foreign,
}
