"""Lines made from what the session knows: a turn's first and last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from parley.engine.turn.outcome import TurnOutcome
from parley.protocol.base import UNSET
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import Init
from parley.tools.base import tool_schema
from parley.version import PROTOCOL_LEVEL, __version__

if TYPE_CHECKING:
    from parley.engine.session.session import Session
    from parley.engine.turn.turn import Turn

CAPABILITIES = ["interrupt_receipt_v1", "interrupt_cancel_queued_v1", "msg_lifecycle_v1"]
"""What clients may rely on; only what works is listed."""


def init_message(session: Session) -> Init:
    """The facts of a session, for the start of a turn."""
    plugins, plugin_errors = session.config.extensions.list_plugins(False)
    return Init(
        cwd=session.config.cwd,
        tools=list_tools(session),
        mcp_servers=session.servers.states(),
        model=session.conversation.model.display_name,
        permissionMode=session.mode,
        slash_commands=[command["name"] for command in session.commands.list_commands()],
        apiKeySource=session.config.model.api_key_source,
        claude_code_version=PROTOCOL_LEVEL,
        parley_version=__version__,
        output_style=session.config.extensions.output_style,
        agents=session.config.agents.registry.names(),
        skills=[recipe.name for recipe in session.commands.skills()],
        plugins=plugins,
        plugin_errors=plugin_errors or UNSET,
        betas=list(session.config.model.betas) or UNSET,
        capabilities=CAPABILITIES,
        analytics_disabled=True,
        product_feedback_disabled=True,
        original_cwd=session.config.cwd,
        additional_directories=[],
        fast_mode_state="off",
        effort=session.conversation.effort or UNSET,
        view_mode="default",
    )


def list_tools(session: Session) -> list[Any]:
    """The names of the tools; with their schemas where the host wants those."""
    names = session.conversation.tool_names()
    if not session.config.client.include_tool_schemas:
        return list(names)
    # The model knows some by another name than the one they are listed under.
    return [{**tool_schema(session.config.tools[name]), "name": name} for name in names]


def result_message(session: Session, turn: Turn, outcome: TurnOutcome, refused_ids: Sequence[str] = ()) -> Result:
    """The end of a turn, with all its numbers; `refused` are prompts that it was to be about."""
    ledger, clock = session.ledger, session.clock.monotonic
    ran = turn.model_call_count > 0
    named = [*refused_ids, *(prompt.uuid for prompt in turn.prompts if prompt.has_client_uuid)]
    origin = next((prompt.origin for prompt in turn.prompts if prompt.origin), None)
    first_token = turn.first_token_seconds
    return Result(
        session_id=session.id,
        uuid=session.clock.new_uuid(),
        subtype=outcome.subtype,
        is_error=outcome.is_error,
        duration_ms=round((clock() - turn.started_at) * 1000),
        duration_api_ms=round(ledger.api_seconds * 1000),
        num_turns=turn.num_turns,
        result=outcome.text,
        stop_reason=outcome.stop_reason,
        terminal_reason=outcome.terminal_reason,
        total_cost_usd=ledger.cost_usd,
        usage=ledger.turn_usage,
        modelUsage=ledger.by_model(),
        model_usage_since_last_result=ledger.by_model_this_turn() if ran else {},
        permission_denials=turn.tool_batch.denials,
        errors=outcome.errors,
        structured_output=outcome.structured_output,
        structured_output_report=outcome.structured_output_report,
        api_error_status=outcome.api_error_status,
        api_error_type=outcome.api_error_type,
        api_error=outcome.api_error,
        fault_type=outcome.fault_type,
        local_command=outcome.local_command,
        origin=origin or UNSET,
        ttft_ms=UNSET if first_token is None else round(first_token * 1000),
        user_message_uuid=named[0] if named else UNSET,
        user_message_uuids=named or UNSET,
        fast_mode_state="off",
        subagent_stats=session.subagents.stats.json() if session.subagents is not None else UNSET,
        queued_turn_count=len(session.prompt_queue),
        result_index=session.runner.results,
    )
