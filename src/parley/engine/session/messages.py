"""Lines made from what the session knows: a turn's first and last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from parley.engine.turn.outcome import Outcome
from parley.protocol.base import UNSET
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import Init
from parley.tools.base import schema
from parley.version import PROTOCOL_LEVEL, __version__

if TYPE_CHECKING:
    from parley.engine.session.session import Session
    from parley.engine.turn.turn import Turn

CAPABILITIES = ["interrupt_receipt_v1", "interrupt_cancel_queued_v1", "msg_lifecycle_v1"]
"""What clients may rely on; only what works is listed."""


def init_line(session: Session) -> Init:
    """The facts of a session, for the start of a turn."""
    plugins, plugin_errors = session.setup.plugins(False)
    return Init(
        cwd=session.setup.cwd,
        tools=listed_tools(session),
        mcp_servers=session.servers.states(),
        model=session.conversation.model.shown,
        permissionMode=session.mode,
        slash_commands=[command["name"] for command in session.commands.listed()],
        apiKeySource=session.setup.api_key_source,
        claude_code_version=PROTOCOL_LEVEL,
        parley_version=__version__,
        output_style=session.setup.output_style,
        agents=session.setup.agents.names(),
        skills=[recipe.name for recipe in session.commands.skills()],
        plugins=plugins,
        plugin_errors=plugin_errors or UNSET,
        betas=list(session.setup.betas) or UNSET,
        capabilities=CAPABILITIES,
        analytics_disabled=True,
        product_feedback_disabled=True,
        original_cwd=session.setup.cwd,
        additional_directories=[],
        fast_mode_state="off",
        effort=session.conversation.effort or UNSET,
        view_mode="default",
    )


def listed_tools(session: Session) -> list[Any]:
    """The names of the tools; with their schemas where the host wants those."""
    names = session.conversation.tool_names()
    if not session.setup.lists_schemas:
        return list(names)
    # The model knows some by another name than the one they are listed under.
    return [{**schema(session.setup.tools[name]), "name": name} for name in names]


def result_line(session: Session, turn: Turn, ended: Outcome, refused: Sequence[str] = ()) -> Result:
    """The end of a turn, with all its numbers; `refused` are prompts that it was to be about."""
    ledger, clock = session.ledger, session.stamp.monotonic
    ran = turn.model_calls > 0
    named = [*refused, *(prompt.uuid for prompt in turn.prompts if prompt.named)]
    origin = next((prompt.origin for prompt in turn.prompts if prompt.origin), None)
    first_token = turn.first_token_seconds
    return Result(
        session_id=session.id,
        uuid=session.stamp.new_uuid(),
        subtype=ended.subtype,
        is_error=ended.is_error,
        duration_ms=round((clock() - turn.begun) * 1000),
        duration_api_ms=round(ledger.api_seconds * 1000),
        num_turns=turn.num_turns,
        result=ended.text,
        stop_reason=ended.stop_reason,
        terminal_reason=ended.terminal_reason,
        total_cost_usd=ledger.cost_usd,
        usage=ledger.turn_usage,
        modelUsage=ledger.by_model(),
        model_usage_since_last_result=ledger.by_model_this_turn() if ran else {},
        permission_denials=turn.calls.denials,
        errors=ended.errors,
        structured_output=ended.structured_output,
        structured_output_report=ended.structured_output_report,
        api_error_status=ended.api_error_status,
        api_error_type=ended.api_error_type,
        api_error=ended.api_error,
        fault_type=ended.fault_type,
        local_command=ended.local_command,
        origin=origin or UNSET,
        ttft_ms=UNSET if first_token is None else round(first_token * 1000),
        user_message_uuid=named[0] if named else UNSET,
        user_message_uuids=named or UNSET,
        fast_mode_state="off",
        subagent_stats=session.subagents.stats.json() if session.subagents is not None else UNSET,
        queued_turn_count=len(session.inbox),
        result_index=session.turns.results,
    )
