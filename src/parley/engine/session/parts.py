"""The parts of a session that its conversations share, and what the client declared about the session."""

from __future__ import annotations

from parley.engine.accounting.ledger import Ledger
from parley.engine.approval.gate import ApprovalGate, SessionMode
from parley.engine.context.models import ModelPool
from parley.engine.context.system_prompt import as_note
from parley.engine.hooks.registry import HookRegistry
from parley.engine.mcp.manager import ServerManager
from parley.engine.session.config import SessionConfig
from parley.engine.session.outbox import Activity, Outbox
from parley.engine.session.prompts import PromptQueue
from parley.engine.side.query import SideQuery
from parley.engine.tasks.manager import TaskManager
from parley.protocol.base import Struct
from parley.tools.base import Context

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
