"""The conversation: prompts, model output, tool results and stream events."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from parley.protocol.base import BOTH, UNSET, Json, Message, Number, Struct, UnsetType, message
from parley.protocol.blocks import Block


class UserContent(Struct, frozen=True, kw_only=True):
    """The `message` of a user message."""

    role: Literal["user"] = "user"
    content: str | list[Block]


class AssistantContent(Struct, frozen=True, kw_only=True):
    """The `message` of an assistant message, as in the Messages API."""

    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    role: Literal["assistant"] = "assistant"
    model: str | UnsetType = UNSET
    content: list[Block]
    stop_reason: str | None | UnsetType = UNSET
    stop_sequence: str | None | UnsetType = UNSET
    usage: Json | None | UnsetType = UNSET
    stop_details: Json | None | UnsetType = UNSET
    container: Json | None | UnsetType = UNSET
    diagnostics: Json | None | UnsetType = UNSET
    context_management: Json | None | UnsetType = UNSET
    error: str | UnsetType = UNSET
    """Some clients expect the error here. We write it on the message itself and read both."""


@message
class User(Message, frozen=True, kw_only=True, tag="user"):
    """From the client, a prompt; from the engine, a tool result, an echo or a marker."""

    senders = BOTH
    message: UserContent
    parent_tool_use_id: str | None | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    timestamp: str | UnsetType = UNSET
    tool_use_result: Any = UNSET
    """The structured form of a tool's output. The model reads the text in the block."""
    tool_result_meta: list[Json] | UnsetType = UNSET
    isReplay: bool | UnsetType = UNSET
    isSynthetic: bool | UnsetType = UNSET
    origin: Json | None | UnsetType = UNSET
    client_composed: bool | UnsetType = UNSET
    """Use the text literally: no @path, no slash command."""
    traceparent: str | UnsetType = UNSET
    """The W3C trace context of the prompt's turn."""
    priority: Any = UNSET
    """`now`, `next` or `later`. Any other value means `next`, so that no prompt is lost."""
    shouldQuery: bool | UnsetType = UNSET
    pasted_content: list[Any] | UnsetType = UNSET
    inline_pastes: list[Any] | UnsetType = UNSET
    agent_id: str | UnsetType = UNSET
    subagent_type: str | UnsetType = UNSET
    task_description: str | UnsetType = UNSET
    file_attachments: list[Any] | UnsetType = UNSET
    system_prompt: str | UnsetType = UNSET
    """In the miriad dialect a prompt can set instructions, MCP servers and environment."""
    mcp_servers: Any = UNSET
    environment: Any = UNSET


@message
class Assistant(Message, frozen=True, kw_only=True, tag="assistant"):
    """Finished content of the model, one message per block, all with the same `message.id`."""

    message: AssistantContent
    parent_tool_use_id: str | None | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    timestamp: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    request_id: str | UnsetType = UNSET
    is_api_error_message: bool | UnsetType = UNSET
    api_error_status: int | None | UnsetType = UNSET
    api_error_type: str | UnsetType = UNSET
    api_error: str | UnsetType = UNSET
    api_error_params: Json | UnsetType = UNSET
    aborted: bool | UnsetType = UNSET
    supersedes: list[str] | UnsetType = UNSET
    user_message_uuid: str | UnsetType = UNSET
    user_message_uuids: list[str] | UnsetType = UNSET
    resume_reason: str | UnsetType = UNSET
    resumed_from_incomplete_thinking: bool | UnsetType = UNSET
    thinking_duration_ms: Number | UnsetType = UNSET
    thinking_display: str | UnsetType = UNSET
    agent_id: str | UnsetType = UNSET
    subagent_type: str | UnsetType = UNSET
    task_description: str | UnsetType = UNSET
    tool_use_meta: list[Json] | UnsetType = UNSET
    """How a client may display calls of MCP tools."""
    local_command_source: str | UnsetType = UNSET
    local_command_run: Json | UnsetType = UNSET
    local_command_outcome: Json | UnsetType = UNSET
    context_usage: Json | UnsetType = UNSET
    usage_report: Json | UnsetType = UNSET
    thinkingMetadata: Json | UnsetType = UNSET
    todos: list[Json] | UnsetType = UNSET


@message
class StreamEvent(Message, frozen=True, kw_only=True, tag="stream_event"):
    """One event of the model's stream, unchanged."""

    event: msgspec.Raw
    session_id: str | UnsetType = UNSET
    parent_tool_use_id: str | None | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    timestamp: str | UnsetType = UNSET
    ttft_ms: Number | UnsetType = UNSET
    api_message_id: str | UnsetType = UNSET
    abandoned_blocks: Json | UnsetType = UNSET
    thinking_display: str | UnsetType = UNSET
    user_message_uuid: str | UnsetType = UNSET
    user_message_uuids: list[str] | UnsetType = UNSET
    resume_reason: str | UnsetType = UNSET
