"""The first and the last message of a turn: `system/init` and `result`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from parley.engine.turn.outcome import TurnOutcome
from parley.protocol.base import UNSET, Json, UnsetType
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import Init
from parley.tools.base import tool_schema
from parley.version import PROTOCOL_LEVEL, __version__

if TYPE_CHECKING:
    from parley.engine.commands.commands import Commands
    from parley.engine.context.conversation import Conversation
    from parley.engine.mcp.manager import ServerManager
    from parley.engine.turn.turn import Turn

CAPABILITIES = [
    "interrupt_receipt_v1",
    "interrupt_cancel_queued_v1",
    "msg_lifecycle_v1",
    "ask_user_question_unanswered_v1",
    "reload_plugins_refuse_if_busy_v1",
    "sdk_mcp_tools_list_changed",
    "sdk_mcp_manifests",
    "mcp_read_resource_v1",
    "mcp_tool_ui_meta_v1",
    "mcp_call_result_not_for_model_v1",
    "mcp_call_check_permissions_v1",
]
"""What clients may rely on."""


def init_message(conversation: Conversation, servers: ServerManager, commands: Commands) -> Init:
    """The facts of a session, sent at the start of every turn."""
    config = conversation.config
    plugins, plugin_errors = config.extensions.list_plugins()
    return Init(
        cwd=conversation.tool_context.state.cwd,
        tools=list_tools(conversation),
        mcp_servers=servers.states(),
        model=conversation.model.display_name,
        permissionMode=conversation.mode(),
        slash_commands=[command["name"] for command in commands.list_commands()],
        apiKeySource=config.model.api_key_source,
        claude_code_version=PROTOCOL_LEVEL,
        parley_version=__version__,
        output_style=config.extensions.output_style,
        agents=config.agents.registry.names(),
        skills=[recipe.name for recipe in commands.skills()],
        plugins=plugins,
        plugin_errors=plugin_errors or UNSET,
        betas=list(config.options.betas) or UNSET,
        capabilities=CAPABILITIES,
        analytics_disabled=True,
        product_feedback_disabled=True,
        original_cwd=config.cwd,
        additional_directories=list_other_folders(conversation),
        fast_mode_state="off",
        effort=conversation.effort or UNSET,
        view_mode="default",
    )


def list_other_folders(conversation: Conversation) -> list[str]:
    """The working directories outside the one that the session started in."""
    config = conversation.config
    inside = os.path.join(config.cwd, "")
    return [folder for folder in config.permissions.policy.list_folders() if not f"{folder}/".startswith(inside)]


def list_tools(conversation: Conversation) -> list[Any]:
    """The names of the tools, or their schemas if the client asks for them."""
    names = conversation.tool_names()
    if not conversation.config.client.include_tool_schemas:
        return list(names)
    # The model knows some tools by another name than the listed one.
    return [{**tool_schema(conversation.config.tools[name]), "name": name} for name in names]


def result_message(
    turn: Turn,
    outcome: TurnOutcome,
    refused_ids: Sequence[str],
    *,
    result_index: int,
    queued_turn_count: int,
    subagent_stats: Json | UnsetType,
) -> Result:
    """The end of a turn, with all its numbers. `refused_ids` are prompts that could not be read."""
    conversation = turn.conversation
    ledger, clock = conversation.ledger, conversation.clock
    has_called_model = turn.model_call_count > 0
    prompt_ids = [*refused_ids, *(prompt.uuid for prompt in turn.prompts if prompt.has_client_uuid)]
    origin = next((prompt.origin for prompt in turn.prompts if prompt.origin), None)
    timings = turn.model_call.timings.since(turn.started_at, has_client_uuid=bool(prompt_ids))
    if outcome.subtype != "success":
        timings = {"ttft_ms": timings["ttft_ms"]} if "ttft_ms" in timings else {}
    return Result(
        session_id=conversation.config.session_id,
        uuid=clock.new_uuid(),
        subtype=outcome.subtype,
        is_error=outcome.is_error,
        duration_ms=round((clock.monotonic() - turn.started_at) * 1000),
        duration_api_ms=round(ledger.api_seconds * 1000),
        # The model call that the limit prevented counts too, as clients expect.
        num_turns=turn.num_turns + (outcome.terminal_reason == "max_turns"),
        result=outcome.text,
        stop_reason=outcome.stop_reason,
        terminal_reason=outcome.terminal_reason,
        total_cost_usd=ledger.cost_usd,
        usage=ledger.turn_usage,
        modelUsage=ledger.by_model(),
        model_usage_since_last_result=ledger.by_model_this_turn() if has_called_model else {},
        permission_denials=turn.tool_batch.denials,
        errors=outcome.errors,
        structured_output=outcome.structured_output,
        structured_output_report=outcome.structured_output_report,
        deferred_tool_use=outcome.deferred_tool_use,
        api_error_status=outcome.api_error_status,
        api_error_type=outcome.api_error_type,
        api_error=outcome.api_error,
        fault_type=outcome.fault_type,
        local_command=outcome.local_command,
        origin=origin or UNSET,
        **timings,
        resume_reason=turn.resume_reason,
        user_message_uuid=prompt_ids[0] if prompt_ids else UNSET,
        user_message_uuids=prompt_ids or UNSET,
        fast_mode_state="off",
        subagent_stats=subagent_stats,
        queued_turn_count=queued_turn_count,
        result_index=result_index,
    )
