"""The parts of a session that its agents use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from parley.engine.approval.gate import ApprovalGate
from parley.engine.commands.commands import Commands
from parley.engine.context.conversation import Conversation
from parley.engine.mcp.manager import ServerManager
from parley.engine.session.outbox import Outbox
from parley.engine.side.query import SideQuery
from parley.engine.tasks.manager import TaskManager
from parley.protocol.base import Struct
from parley.protocol.messages.result import Denial


class AgentEnvironment(Struct, frozen=True, kw_only=True):
    """What the agents of a session share with it."""

    conversation: Conversation
    """The session's own conversation: its config, journal, ledger, models and hooks are shared."""
    outbox: Outbox
    gate: ApprovalGate
    tasks: TaskManager
    servers: ServerManager
    commands: Commands
    may_bypass: Callable[[], bool]
    """Whether the mode bypassPermissions is allowed."""
    forwards_text: Callable[[], bool]
    """Whether the client receives the text of subagents."""
    summarizes: Callable[[], SideQuery | None]
    """What asks models for the progress of subagents; None if the client does not want it."""
    add_denials: Callable[[Sequence[Denial]], None]
    """Adds denials of a foreground agent to the result of the current turn."""
