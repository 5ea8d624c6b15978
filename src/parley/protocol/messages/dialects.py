"""Messages of the dialects spec001, miriad and JSON-RPC, and internal events for all dialects."""

from __future__ import annotations

from typing import Any, Literal

from parley.protocol.base import BOTH, HOST_ONLY, UNSET, Json, Message, UnsetType, message, message_of


@message
class PermissionRequest(Message, frozen=True, kw_only=True, tag="system"):
    """spec001: a call needs permission. For information; it cannot be answered."""

    subtype: Literal["permission_request"] = "permission_request"
    tool: str
    params: Json
    session_id: str | UnsetType = UNSET
    timestamp: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class HookExecution(Message, frozen=True, kw_only=True, tag="system"):
    """spec001: a hook ran."""

    subtype: Literal["hook_execution"] = "hook_execution"
    hook_event: str | UnsetType = UNSET
    hook_name: str | UnsetType = UNSET
    tool: str | UnsetType = UNSET
    outcome: str | UnsetType = UNSET
    output: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    timestamp: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class SystemFault(Message, frozen=True, kw_only=True, tag="system"):
    """spec001 and miriad: an error that does not end the session. miriad uses `message`, spec001 `error`."""

    subtype: Literal["error"] = "error"
    message: str | UnsetType = UNSET
    error: Json | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    timestamp: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET


@message
class SystemToolResult(Message, frozen=True, kw_only=True, tag="system"):
    """miriad: a tool result."""

    subtype: Literal["tool_result"] = "tool_result"
    tool_result: Json
    session_id: str | UnsetType = UNSET


@message
class Queued(Message, frozen=True, kw_only=True, tag="system"):
    """miriad: a user message arrived during a turn and waits for the next model call."""

    subtype: Literal["queued"] = "queued"
    session_id: str | UnsetType = UNSET
    position: int
    """1 for the next message to be injected."""
    user_message_uuid: str | UnsetType = UNSET
    """The queued message. Used by the dialects and not sent."""


@message
class Injected(Message, frozen=True, kw_only=True, tag="system"):
    """miriad: queued messages were added to the running turn."""

    subtype: Literal["injected"] = "injected"
    message_count: int
    content_length: int
    session_id: str | UnsetType = UNSET


@message
class Consolidation(Message, frozen=True, kw_only=True, tag="system"):
    """miriad: the memory was consolidated."""

    subtype: Literal["consolidation"] = "consolidation"
    entries_created: int
    entries_updated: int
    entries_archived: int | UnsetType = UNSET
    summary: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET


@message
class Interrupted(Message, frozen=True, kw_only=True, tag="system"):
    """miriad: the interrupt was accepted."""

    subtype: Literal["interrupted"] = "interrupted"
    session_id: str | UnsetType = UNSET


@message
class HeartbeatAck(Message, frozen=True, kw_only=True, tag="system"):
    """miriad: the reply to a heartbeat."""

    subtype: Literal["heartbeat_ack"] = "heartbeat_ack"
    timestamp: Any = UNSET
    session_id: str | UnsetType = UNSET


@message
class Control(Message, frozen=True, kw_only=True, tag="control"):
    """miriad: interrupt, status or heartbeat, without an id."""

    senders = HOST_ONLY
    action: str


@message_of("jsonrpc")
class JsonRpc(Message, frozen=True, kw_only=True, tag=False):
    """JSON-RPC: the envelope of every message; also used by MCP servers."""

    senders = BOTH
    jsonrpc: Literal["2.0"] = "2.0"
    id: str | int | None | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Any = UNSET
    result: Any = UNSET
    error: Json | UnsetType = UNSET


class SessionOpened(Message, frozen=True, kw_only=True, tag="session_opened"):
    """Internal: the session is ready for prompts. Always the first message. Not sent."""

    session_id: str | UnsetType = UNSET
    client_tools: list[str] = []
    """The names of the tools that the client runs."""


class AnswerComplete(Message, frozen=True, kw_only=True, tag="answer_complete"):
    """Internal: a model response is complete and its tools are about to run. Not sent."""

    message_id: str


class CallDenied(Message, frozen=True, kw_only=True, tag="call_denied"):
    """Internal: a call was denied and the client was not asked. Text output reports it. Not sent."""

    tool_name: str
    about: str
    """What the call is about, in a few words."""
    reason: str
    suggestions: list[Json]
    """Permission updates that would have allowed it, as `can_use_tool` offers them."""


class Provisions(Message, frozen=True, kw_only=True, tag="provisions"):
    """Internal: session changes in a miriad prompt, which the dialect extracts from it. Not sent."""

    senders = HOST_ONLY
    system_prompt: str | UnsetType = UNSET
    """Replaces the instructions from the next model call on."""
    environment: dict[str, str] | UnsetType = UNSET
    """Variables for commands that tools run from now on. They are not stored."""


class HostThere(Message, frozen=True, kw_only=True, tag="host_there"):
    """Internal: a miriad client is connected, so pending work of an earlier engine can resume. Not sent."""

    senders = HOST_ONLY


class Withdrawal(Message, frozen=True, kw_only=True, tag="withdrawal"):
    """Internal: a prompt is cancelled, whether queued or running. JSON-RPC creates it from `cancel`. Not sent."""

    senders = HOST_ONLY
    user_message_uuid: str


DIALECT_EVENTS: frozenset[type[Message]] = frozenset(
    {SessionOpened, AnswerComplete, CallDenied, Queued, Injected, SystemFault, PermissionRequest}
)
"""Messages that the engine sends to every dialect. The stream-json dialect drops them; others use what they support."""
