"""The dialect miriad: one session over `--stdio`, with prompts that can enter the running turn.

The client sends `user` and `control`; the engine sends `assistant`, `system` and `result`, smaller than the
canonical ones and without ids. There are no approval requests. A prompt is reported when it waits in the queue and
when it enters the turn; each turn has one `result`.

An answer of the model is one line: its blocks are held until it is complete, before its tools run. Thinking, partial
messages and the messages of subagents are not sent.

The state of prompts follows from the messages of the engine: `command_lifecycle` reports the state of each prompt with
an id, `Queued` which of them wait, `init` and `result` the start and the end of a turn.

Tools have lower-case names and camelCase parameters. MCP and memory tools keep their names and inputs.

    to_dialect({"name": "Read", "input": {"file_path": "a", "offset": 3}})
        -> {"name": "read", "input": {"filePath": "a", "offset": 2}}
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from parley.protocol.base import UNSET, Json, Message, Refused, Unknown, UnsetType, decode, encode, encode_json
from parley.protocol.blocks import Block, Text, ToolResult, ToolUse
from parley.protocol.dialects.base import DialectContext, DialectProfile, HeldAnswer, Reply, system
from parley.protocol.messages.control import ControlRequest, ControlResponse, Failure, RequestId
from parley.protocol.messages.conversation import Assistant, User
from parley.protocol.messages.dialects import (
    AnswerComplete,
    Consolidation,
    Control,
    Injected,
    JsonRpc,
    Provisions,
    Queued,
    SessionOpened,
    SystemFault,
)
from parley.protocol.messages.notices import CommandLifecycle
from parley.protocol.messages.panel_requests import McpSetServers
from parley.protocol.messages.requests import Interrupt
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import ApiRetry, Informational, Init


def fault(text: str) -> Json:
    return system("error", message=text)


def with_one_text(content: str | list[Block]) -> str | list[Block]:
    """A prompt with adjacent texts joined by newlines. Other blocks keep their places."""
    if isinstance(content, str):
        return content
    found: list[Block] = []
    for block in content:
        last = found[-1] if found else None
        if isinstance(last, Text) and isinstance(block, Text):
            found[-1] = Text({**last.json, **block.json, "text": f"{last.text}\n{block.text}"})
        else:
            found.append(block)
    return found


def is_tool_result(message: User) -> bool:
    """Whether a line of the client is the output of a client tool, not a prompt."""
    content = message.message.content
    return not isinstance(content, str) and any(isinstance(block, ToolResult) for block in content)


def outcome(block: ToolResult) -> Json:
    """The output of a tool; only a failure has `is_error`."""
    found = {"type": "tool_result", "tool_use_id": block.tool_use_id, "content": block.content}
    return {**found, "is_error": True} if block.is_error else found


def subtype(message: Result) -> str:
    if isinstance(message.terminal_reason, str) and message.terminal_reason.startswith("aborted_"):
        return "cancelled"
    return "error" if message.is_error is True or message.subtype != "success" else "success"


def text_of(message: Result) -> str:
    if isinstance(message.result, str):
        return message.result
    is_told = subtype(message) == "error" and isinstance(message.errors, list)
    return "\n".join(message.errors) if is_told and isinstance(message.errors, list) else ""


def encode_injected(message: Injected) -> list[Json]:
    return [system("injected", message_count=message.message_count, content_length=message.content_length)]


def encode_consolidation(message: Consolidation) -> list[Json]:
    more = {"entries_archived": message.entries_archived, "summary": message.summary}
    return [
        system(
            "consolidation",
            entries_created=message.entries_created,
            entries_updated=message.entries_updated,
            **{name: value for name, value in more.items() if value is not UNSET},
        )
    ]


def encode_fault(message: SystemFault) -> list[Json]:
    return [fault(message.message)] if isinstance(message.message, str) else []


def encode_retry(message: ApiRetry) -> list[Json]:
    seconds = message.retry_delay_ms / 1000
    tries = f"attempt {message.attempt} of {message.max_retries}"
    return [fault(f"The model call failed ({message.error}); {tries} follows in {seconds:.1f} s")]


def encode_informational(message: Informational) -> list[Json]:
    return [fault(message.content)] if message.level in ("warning", "error") else []


SHOWN_BLOCKS = (Text, ToolUse)
AS_THEY_ARE = ("mcp__", "memory_", "ltm_")
_HUMP = r"(?<=[a-z0-9])(?=[A-Z])"
_BAR = r"(?<=[a-z0-9])_([a-z0-9])"


def count_from_0(value: Any) -> Any:
    return value - 1 if isinstance(value, int) and not isinstance(value, bool) else value


PARAMETERS: dict[tuple[str, str], tuple[str, Callable[[Any], Any]]] = {
    ("Read", "offset"): ("offset", count_from_0),
    ("Grep", "glob"): ("include", lambda value: value),
}
"""Parameters that differ by more than their spelling, by our tool and parameter name."""


def to_dialect(block: Json) -> Json:
    """A `tool_use` block in the spelling of the dialect."""
    name = str(block["name"])
    if name.startswith(AS_THEY_ARE):
        return block
    given: Json = {}
    for key, value in block["input"].items():
        spelled = re.sub(_BAR, lambda found: found[1].upper(), key)
        there, change = PARAMETERS.get((name, key), (spelled, None))
        given[there] = value if change is None else change(value)
    return {**block, "name": re.sub(_HUMP, "_", name).lower(), "input": given}


class PromptTracker:
    def __init__(self) -> None:
        self.session_id = ""
        """The id of the session."""
        self.queued: list[str] = []
        """Prompts that wait for a turn to end."""
        self._open: dict[str, str | None] = {}
        """The session id that the client gave with each open prompt; None if it gave none."""
        self._accepted: set[str] = set()
        self._in_turn = False
        self.have_run = False
        """Whether a turn has ended."""

    def add(self, uuid: str, session_id: str | None) -> None:
        self._open[uuid] = session_id

    @property
    def is_running(self) -> bool:
        """Whether a turn runs or is about to."""
        return self._in_turn or bool(self._accepted)

    def is_accepted(self, uuid: str) -> bool:
        """Whether the engine accepted a prompt that has no result yet."""
        return uuid in self._accepted

    def session_of(self, uuid: object) -> str:
        """The session id that the client gave with a prompt, else the id of the session."""
        return (self._open.get(uuid) if isinstance(uuid, str) else None) or self.session_id

    def update(self, message: Message) -> None:
        """Update the state from a message of the engine."""
        match message:
            case SessionOpened(session_id=str() as own):
                self.session_id = own
            case Init():
                self._in_turn = True
            case Queued(user_message_uuid=str() as uuid):
                self.queued.append(uuid)
            case CommandLifecycle(command_uuid=uuid, state="queued"):
                self._accepted.add(uuid)
            case CommandLifecycle(command_uuid=uuid, state="started"):
                self._in_turn = True
                self._leave_queue(uuid)
            case CommandLifecycle(command_uuid=uuid):
                self._leave_queue(uuid)
                self._forget(uuid)
            case Result(user_message_uuids=answered):
                self._in_turn, self.have_run = False, True
                # They end with the result; the lifecycle message of each comes a little later.
                for uuid in answered or ():
                    if uuid not in self._accepted:
                        self._open.pop(uuid, None)  # it was refused: nothing follows
                self._accepted -= set(answered or ())

    def _leave_queue(self, uuid: str) -> None:
        if uuid in self.queued:
            self.queued.remove(uuid)

    def _forget(self, uuid: str) -> None:
        self._open.pop(uuid, None)
        self._accepted.discard(uuid)


class Miriad:
    name = "miriad"
    can_request = False
    profile: ClassVar[DialectProfile] = DialectProfile(
        over_stdio=True, prompt_separator="\n\n", merge_prompts=False, client_tools="always"
    )

    def __init__(self, world: DialectContext) -> None:
        self._world = world
        self.prompts = PromptTracker()
        self._asked: set[str] = set()
        """Requests sent to the engine for the client: interrupts and servers."""
        self._silenced: set[RequestId] = set()
        """Requests whose success is not reported."""
        self._answer: HeldAnswer | None = None
        """The blocks of the answer that is not complete yet."""
        self._tool_results = 0
        self._client_tools: list[str] = []

    # In.

    def decode(self, line: bytes) -> list[Message]:
        message = decode(line)
        match message:
            case User():
                return [self.refuse(one) if isinstance(one, Refused) else one for one in self.read_prompt(message)]
            case Control(action=action):
                return self.read_control(action)
            case Refused(kind="user"):
                return [self.refuse(message)]
            case Refused(reason=reason, request_id=None):
                return [self.reply(fault(reason))]
            case Unknown(kind=kind):
                return [self.reply(fault(f"Unknown message type: {kind}"))]
            case JsonRpc():
                return [
                    self.reply(fault("This connection does not use JSON-RPC, because its first line was not JSON-RPC"))
                ]
        return [message]

    def refuse(self, refused: Refused) -> Refused:
        """A prompt that is refused: the client gets a result with the id it gave."""
        uuid = refused.uuid or self._world.new_uuid()
        self.prompts.add(uuid, refused.session_id)
        return msgspec.structs.replace(refused, uuid=uuid)

    def read_prompt(self, message: User) -> list[Message]:
        """A prompt, after what it sets for the session."""
        session_id = message.session_id if isinstance(message.session_id, str) else None
        named = message.uuid if isinstance(message.uuid, str) and message.uuid else None
        try:
            brought = self.read_provisions(message)
        except msgspec.ValidationError as exc:
            return [Refused(reason=f"user: {exc}", kind="user", uuid=named, session_id=session_id)]
        uuid = named or self._world.new_uuid()
        if not is_tool_result(message):
            self.prompts.add(uuid, session_id)
        inner = msgspec.structs.replace(message.message, content=with_one_text(message.message.content))
        return [*brought, msgspec.structs.replace(message, uuid=uuid, message=inner)]

    def read_provisions(self, message: User) -> list[Message]:
        """The instructions, servers and variables of a line. Raises msgspec.ValidationError."""
        found: list[Message] = []
        environment: dict[str, str] | UnsetType = UNSET
        if message.environment not in (UNSET, None):
            environment = msgspec.convert(message.environment, dict[str, str])
        if isinstance(message.system_prompt, str) or environment:
            found.append(Provisions(system_prompt=message.system_prompt, environment=environment))
        if message.mcp_servers not in (UNSET, None):
            servers = msgspec.convert(message.mcp_servers, dict[str, Json])
            found.append(self._request(McpSetServers(servers=servers)))
        return found

    def read_control(self, action: str) -> list[Message]:
        match action:
            case "interrupt" if self.prompts.is_running:
                return [self._request(Interrupt())]
            case "interrupt":
                return [self.reply(fault("No turn is currently running")), *self.stop_background()]
            case "status":
                return [self.reply(self.status())]
            case "heartbeat":
                return [self.reply(system("heartbeat_ack", timestamp=self._world.now(), **self._own_id()))]
        return [self.reply(fault(f"Unknown control action: {action}"))]

    def stop_background(self) -> list[Message]:
        """No turn runs, but the memory work after the last one must stop. The answer is not sent."""
        if not self.prompts.have_run:
            return []  # without a session there is nothing to interrupt
        asked = self._request(Interrupt())
        self._silenced.add(asked.request_id)
        return [asked]

    def _request(self, request: Interrupt | McpSetServers) -> ControlRequest:
        request_id = self._world.new_uuid()
        self._asked.add(request_id)
        return ControlRequest(request_id=request_id, request=request)

    def reply(self, frame: Json) -> Reply:
        return Reply(lines=[encode_json(frame)])

    def status(self) -> Json:
        known = self.prompts
        return system("status", running=known.is_running, **self._own_id(), queued_messages=len(known.queued))

    def _own_id(self) -> Json:
        return {"session_id": self.prompts.session_id or None}

    # Out.

    def encode(self, message: Message) -> list[bytes]:
        if isinstance(message, ControlRequest | ControlResponse) and not self._is_ours(message):
            return [encode(message)]
        return [encode_json(frame) for frame in self.frames(message)]

    def _is_ours(self, message: ControlRequest | ControlResponse) -> bool:
        return isinstance(message, ControlResponse) and message.response.request_id in self._asked

    def frames(self, message: Message) -> list[Json]:
        """The lines for a message, as objects."""
        say = FRAMES.get(type(message))
        said = say(self, message) if say is not None else []
        self.prompts.update(message)
        return said

    def open(self, message: SessionOpened) -> list[Json]:
        self._client_tools = message.client_tools
        return []

    def encode_assistant(self, message: Assistant) -> list[Json]:
        if message.parent_tool_use_id:
            return []
        content = message.message.content
        if message.is_api_error_message is True:
            return [*self.finish_answer(), *(fault(block.text) for block in content if isinstance(block, Text))]
        said = [self._shown(block) for block in content if isinstance(block, SHOWN_BLOCKS)]
        held = self._answer
        if held is not None and held.includes(message):
            held.content += said
            return []
        before = self.finish_answer()
        self._answer = HeldAnswer(message, said)
        return before

    def _shown(self, block: Block) -> Json:
        """A block in this dialect. Client tools keep the client's names."""
        is_ours = isinstance(block, ToolUse) and block.name not in self._client_tools
        return to_dialect(block.json) if is_ours else block.json

    def finish_answer(self, message: Message | None = None) -> list[Json]:
        """The held answer, as one line."""
        held, self._answer = self._answer, None
        if held is None or not held.content:
            return []
        model = {} if held.first.message.model is UNSET else {"model": held.first.message.model}
        return [{"type": "assistant", "message": {"role": "assistant", "content": held.content, **model}}]

    def encode_user(self, message: User) -> list[Json]:
        if message.parent_tool_use_id or isinstance(message.message.content, str):
            return []
        results = [block for block in message.message.content if isinstance(block, ToolResult)]
        self._tool_results += len(results)
        return [*self.finish_answer(), *(system("tool_result", tool_result=outcome(block)) for block in results)]

    def encode_result(self, message: Result) -> list[Json]:
        cycles, self._tool_results = self._tool_results, 0
        named = message.user_message_uuids or [""]
        frame: Json = {
            "type": "result",
            "subtype": subtype(message),
            "duration_ms": message.duration_ms or 0,
            "is_error": subtype(message) == "error",
            "num_turns": cycles,
            "session_id": self.prompts.session_of(named[0]) or message.session_id,
        }
        if text := text_of(message):
            frame["result"] = text
        if isinstance(message.usage, dict):
            frame["usage"] = {name: message.usage.get(name) or 0 for name in ("input_tokens", "output_tokens")}
        return [*self.finish_answer(), frame]

    def encode_queued(self, message: Queued) -> list[Json]:
        session_id = self.prompts.session_of(message.user_message_uuid)
        return [system("queued", session_id=session_id, position=message.position)]

    def encode_withdrawn(self, message: CommandLifecycle) -> list[Json]:
        """A queued prompt that does not run: no turn has its `result`, so this line ends it."""
        if message.state != "cancelled" or message.command_uuid not in self.prompts.queued:
            return []
        place = self.prompts.queued.index(message.command_uuid) + 1
        return [fault(f"The queued message at position {place} was cancelled: it did not run")]

    def encode_answered(self, message: ControlResponse) -> list[Json]:
        """The outcome of our requests: an interrupt is acknowledged, server errors are reported."""
        answer = message.response
        self._asked.discard(str(answer.request_id))
        is_hushed = answer.request_id in self._silenced
        self._silenced.discard(answer.request_id)
        if isinstance(answer, Failure):
            return [fault(answer.error)]
        if is_hushed:
            return []
        if isinstance(answer.response, dict) and isinstance(answer.response.get("errors"), dict):
            return [fault(f"MCP server {name!r}: {why}") for name, why in answer.response["errors"].items()]
        if isinstance(answer.response, dict) and "still_queued" in answer.response:
            return [system("interrupted", **self._own_id())]
        return []


def alone(say: Callable[[Any], list[Json]]) -> Callable[[Miriad, Any], list[Json]]:
    """A row for a line that depends on the message alone."""
    return lambda dialect, message: say(message)


FRAMES: dict[type[Message], Callable[[Miriad, Any], list[Json]]] = {
    SessionOpened: Miriad.open,
    Assistant: Miriad.encode_assistant,
    AnswerComplete: Miriad.finish_answer,
    User: Miriad.encode_user,
    Result: Miriad.encode_result,
    Queued: Miriad.encode_queued,
    CommandLifecycle: Miriad.encode_withdrawn,
    ControlResponse: Miriad.encode_answered,
    Injected: alone(encode_injected),
    Consolidation: alone(encode_consolidation),
    SystemFault: alone(encode_fault),
    ApiRetry: alone(encode_retry),
    Informational: alone(encode_informational),
}
"""The encoder of each message. Messages without a row are not sent."""
