"""Messages and their content blocks, with the classes of the official SDK; and the result of a whole run.

Every message that was received has the line it was parsed from:

    message.wire    the message of parley.protocol, with all its fields typed
    message.raw     the line as a plain object

so no field is lost, even if the class does not have it. A message of an unknown type is an
`Unknown`. An invalid line is an `Unreadable`, and the stream continues. A block without an official class (an image, a
document, or a type of a newer engine) is an `OtherBlock` with the whole object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Literal

import msgspec

from parley.protocol import blocks as wire
from parley.protocol.base import Json
from parley.protocol.base import Message as WireMessage
from parley.protocol.messages.result import Result
from parley.sdk.schema import parse_output
from parley.sdk.types.generic import OutputT
from parley.sdk.types.shapes import (
    MessageOrigin,
    ModelUsage,
    RateLimitStatus,
    RateLimitType,
    SessionKey,
    TaskNotificationStatus,
    TaskUpdatedStatus,
    TaskUsage,
)

ServerToolName = Literal[
    "advisor",
    "web_search",
    "web_fetch",
    "code_execution",
    "bash_code_execution",
    "text_editor_code_execution",
    "tool_search_tool_regex",
    "tool_search_tool_bm25",
]


@dataclass
class TextBlock:
    """Text of the model."""

    text: str


@dataclass
class ThinkingBlock:
    """What the model thought before it answered."""

    thinking: str
    signature: str


@dataclass
class ToolUseBlock:
    """A tool call of the model."""

    id: str
    name: str
    input: Json


@dataclass
class ToolResultBlock:
    """The result of a tool call."""

    tool_use_id: str
    content: str | list[Json] | None = None
    is_error: bool | None = None


@dataclass
class ServerToolUseBlock:
    """A tool call that the model's backend runs."""

    id: str
    name: str
    input: Json


@dataclass
class ServerToolResultBlock:
    """The result of a tool call that the model's backend ran."""

    tool_use_id: str
    content: Any


@dataclass
class OtherBlock:
    """A block without its own class: an image, a document, or a type of a newer engine."""

    type: str
    data: Json
    """The whole object."""


ContentBlock = (
    TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock | ServerToolUseBlock | ServerToolResultBlock | OtherBlock
)

READERS: dict[type[wire.Block], Callable[[Any], ContentBlock]] = {
    wire.Text: lambda block: TextBlock(block.text),
    wire.Thinking: lambda block: ThinkingBlock(block.thinking, block.signature),
    wire.ToolUse: lambda block: ToolUseBlock(block.id, block.name, block.input),
    wire.ToolResult: lambda block: ToolResultBlock(block.tool_use_id, block.content, block.json.get("is_error")),
    wire.ServerToolUse: lambda block: ServerToolUseBlock(block.id, block.name, block.input),
    wire.ServerToolResult: lambda block: ServerToolResultBlock(block.tool_use_id, block.content),
}


def read_block(block: wire.Block) -> ContentBlock:
    reader = READERS.get(type(block))
    return OtherBlock(block.type, block.json) if reader is None else reader(block)


def read_content(content: wire.Content) -> str | list[ContentBlock]:
    return content if isinstance(content, str) else [read_block(block) for block in content]


AssistantMessageError = str
"""authentication_failed, billing_error, rate_limit, invalid_request, server_error, unknown, or a newer value."""


def object_of(line: bytes) -> Any:
    """Decode a valid line, even if it contains numbers that are too long for msgspec."""
    try:
        return msgspec.json.decode(line)
    except msgspec.ValidationError:
        import json

        return json.loads(line, parse_int=float)


class ReceivedMessage:
    """Base class of messages that may have been received."""

    @property
    def wire(self) -> WireMessage | None:
        """The protocol message; None if this one was created locally."""
        return self.__dict__.get("_wire")

    @property
    def raw(self) -> Json:
        """The line as a dict; empty if the message was created locally."""
        line = self.wire.line if self.wire is not None else None
        return {} if line is None else object_of(line)


@dataclass
class UserMessage(ReceivedMessage):
    """A prompt, a tool result, an echo of a prompt, or a message that the engine added."""

    content: str | list[ContentBlock]
    uuid: str | None = None
    parent_tool_use_id: str | None = None
    tool_use_result: Any = None
    origin: MessageOrigin | None = None


@dataclass
class AssistantMessage(ReceivedMessage):
    """Finished content of the model, usually one block per message."""

    content: list[ContentBlock]
    model: str
    parent_tool_use_id: str | None = None
    error: AssistantMessageError | None = None
    usage: Json | None = None
    message_id: str | None = None
    stop_reason: str | None = None
    session_id: str | None = None
    uuid: str | None = None
    user_message_uuid: str | None = None
    """The prompt that the reply answers, on the first message of a turn and when it changes (`ResultMessage`)."""
    user_message_uuids: list[str] | None = None

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))


@dataclass
class SystemMessage(ReceivedMessage):
    """A message of the engine: `init`, `status`, `compact_boundary` and others."""

    subtype: str
    data: Json
    """The whole line."""


@dataclass
class TaskStartedMessage(SystemMessage):
    """A background task has started."""

    task_id: str
    description: str
    uuid: str
    session_id: str
    tool_use_id: str | None = None
    task_type: str | None = None


@dataclass
class TaskProgressMessage(SystemMessage):
    """What a background task has done so far."""

    task_id: str
    description: str
    usage: TaskUsage
    uuid: str
    session_id: str
    tool_use_id: str | None = None
    last_tool_name: str | None = None


@dataclass
class TaskNotificationMessage(SystemMessage):
    """A background task has ended."""

    task_id: str
    status: TaskNotificationStatus
    output_file: str
    summary: str
    uuid: str
    session_id: str
    tool_use_id: str | None = None
    usage: TaskUsage | None = None


@dataclass
class TaskUpdatedMessage(SystemMessage):
    """The state of a background task changed; `patch` has the changed fields."""

    task_id: str
    patch: Json
    status: TaskUpdatedStatus | None = None
    session_id: str | None = None
    uuid: str | None = None


@dataclass
class HookEventMessage(SystemMessage):
    """A hook started, made progress or replied."""

    hook_event_name: str = ""
    session_id: str | None = None
    uuid: str | None = None


@dataclass
class MirrorErrorMessage(SystemMessage):
    """Writing to the program's session store failed."""

    key: SessionKey | None = None
    error: str = ""


@dataclass
class DeferredToolUse:
    """A call that a hook deferred; it is decided when the session is resumed."""

    id: str
    name: str
    input: Json


@dataclass
class ResultMessage(ReceivedMessage):
    """The end of a turn."""

    subtype: str
    duration_ms: int
    duration_api_ms: int
    is_error: bool
    num_turns: int
    session_id: str
    stop_reason: str | None = None
    total_cost_usd: float | None = None
    """What the session has cost so far; 0 if the price of a model is not known, where `RunResult.cost_usd` is None."""
    usage: Json | None = None
    result: str | None = None
    structured_output: Any = None
    model_usage: dict[str, ModelUsage] | None = None
    permission_denials: list[Any] | None = None
    deferred_tool_use: DeferredToolUse | None = None
    errors: list[str] | None = None
    api_error_status: int | None = None
    uuid: str | None = None
    terminal_reason: str | None = None
    origin: MessageOrigin | None = None
    """What started the turn. It does not tell whose prompts the turn answered; `user_message_uuids` does."""
    user_message_uuid: str | None = None
    """The last prompt that started the turn; if it was not started by a prompt, the last one that joined it. Only
    prompts that were sent with a `uuid` are named."""
    user_message_uuids: list[str] | None = None
    """All prompts of the turn: those that started it, then those that joined it."""


@dataclass
class StreamEvent(ReceivedMessage):
    """One event of the model's stream."""

    uuid: str
    session_id: str
    event: Json
    parent_tool_use_id: str | None = None
    user_message_uuid: str | None = None
    """As in `AssistantMessage`."""
    user_message_uuids: list[str] | None = None


@dataclass
class RateLimitInfo:
    """The state of a quota."""

    status: RateLimitStatus
    resets_at: int | None = None
    rate_limit_type: RateLimitType | None = None
    utilization: float | None = None
    overage_status: RateLimitStatus | None = None
    overage_resets_at: int | None = None
    overage_disabled_reason: str | None = None
    raw: Json = field(default_factory=dict)


@dataclass
class RateLimitEvent(ReceivedMessage):
    """The quota of the account changed."""

    rate_limit_info: RateLimitInfo
    uuid: str
    session_id: str


@dataclass
class ConversationResetMessage(ReceivedMessage):
    """The conversation was replaced, for example by `/clear`."""

    new_conversation_id: str
    uuid: str
    session_id: str


@dataclass
class Notice(ReceivedMessage):
    """Any other known message: tool progress, prompt state, an error."""

    type: str
    data: Json


@dataclass
class Unknown(ReceivedMessage):
    """A message of an unknown type, with all its data."""

    type: str
    subtype: str | None
    data: Json


@dataclass
class Unreadable(ReceivedMessage):
    """A line that could not be read: not JSON, too long, or with an invalid field. The stream continues."""

    reason: str
    type: str | None = None


Message = (
    UserMessage
    | AssistantMessage
    | SystemMessage
    | ResultMessage
    | StreamEvent
    | RateLimitEvent
    | ConversationResetMessage
    | Notice
    | Unknown
    | Unreadable
)

TERMINAL_TASK_STATUSES: frozenset[str] = frozenset({"completed", "failed", "stopped", "killed"})


class RunResult(Generic[OutputT]):
    """What `run`, `run_sync` and `Client.run` return: the answer, and what it took.

    result = await client.run("Describe Ulm.")
    print(result.text, result.output, result.model, result.usage["output_tokens"], result.cost_usd)
    """

    def __init__(
        self, message: ResultMessage, parser: Callable[[Any], Any] | None = None, model: str | None = None
    ) -> None:
        self.message = message
        """The whole result."""
        self.model = model
        """The model that gave the answer; None if none did."""
        self._parser = parser

    def __repr__(self) -> str:
        return f"RunResult({self.text!r:.200})"

    @property
    def text(self) -> str:
        """The answer as text; of a failed turn (`check=False`), the error."""
        return self.message.result or ""

    @cached_property
    def output(self) -> OutputT:
        """The structured output, as `Options.output_type` if that is set. Raises MessageParseError if there is none."""
        found: OutputT = parse_output(self.message, self._parser)
        return found

    @property
    def is_error(self) -> bool:
        """Whether the turn failed. Only with `check=False`; otherwise ResultError was raised."""
        return self.message.is_error

    @property
    def cost_usd(self) -> float | None:
        """What the session has cost so far; None if the price of a model is not known."""
        wire = self.message.wire
        known = wire.total_cost_usd if isinstance(wire, Result) else self.message.total_cost_usd
        return known if isinstance(known, int | float) else None

    @property
    def usage(self) -> Json:
        """The tokens of the turn: `input_tokens`, `output_tokens` and others. Empty if no model was called."""
        return self.message.usage or {}

    @property
    def denials(self) -> list[Json]:
        """The calls of the turn that were denied: `tool_name`, `tool_input`, `tool_use_id`."""
        return self.message.permission_denials or []

    @property
    def session_id(self) -> str:
        """The session, for `Options.resume`."""
        return self.message.session_id
