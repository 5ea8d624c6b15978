"""Assertions on a conversation: which tools were called, what became of them, how the turn ended.

    expect(messages).tool("Bash", command="rm -r build").denied("not here").turn_ended(text="I may not.")

`messages` are those of an SDK, JSON objects, or a recording (`read_wire_recording`). Checks look forward: each
one searches after what the previous one found. A check that fails raises AssertionError, which shows the conversation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import msgspec

from parley.models.script import text_in
from parley.protocol.base import Json, Struct
from parley.stores.wire_recording import WireRecording, decode_line

SHOWN_CHARS = 100


class ConversationEvent(Struct, frozen=True, kw_only=True):
    """One thing that happened in a conversation."""

    kind: str
    """`text`, `tool`, `tool_result`, `ask`, `answer` or `result`."""
    id: str = ""
    """The tool call that it belongs to; of `ask` and `answer`, too."""
    name: str = ""
    text: str = ""
    input: Json = {}
    is_error: bool = False
    denied: frozenset[str] = frozenset()
    """Of a result: the tool calls that were denied."""

    def __str__(self) -> str:
        match self.kind:
            case "tool":
                words = f"calls {self.name} {msgspec.json.encode(self.input).decode()}"
            case "tool_result":
                words = f"{'error' if self.is_error else 'result'} of the tool: {self.text}"
            case "ask":
                words = f"asks whether {self.name} may run"
            case "answer":
                words = f"the client answers: {self.name} {self.text}".rstrip()
            case "result":
                words = f"the turn ends with {self.name}{', an error' if self.is_error else ''}: {self.text}"
            case _:
                words = f"says: {self.text}"
        return words if len(words) <= SHOWN_CHARS else f"{words[:SHOWN_CHARS]}…"


class Expectation:
    """Checks on a conversation, in order."""

    def __init__(self, events: list[ConversationEvent]) -> None:
        self._events = events
        self._next = 0
        self._call: ConversationEvent | None = None
        """The tool call that the following checks are about."""

    def tool(self, name: str, /, **input: Any) -> Self:
        """The assistant calls this tool, with at least this input."""
        __tracebackhide__ = True
        found = self._find("tool", lambda event: event.name == name and contains_input(event.input, input))
        if found is None:
            wanted = f" with {msgspec.json.encode(input).decode()}" if input else ""
            raise self._error(f"expected a call of {name}{wanted}; {self._others('tool', name)}")
        self._call = found
        return self

    def no_tool(self, name: str, /) -> Self:
        """This tool is not called, from here on."""
        __tracebackhide__ = True
        if any(event.kind == "tool" and event.name == name for event in self._events[self._next :]):
            raise self._error(f"expected no call of {name}; it was called")
        return self

    def asked(self) -> Self:
        """The client was asked for permission for the call. Only recordings show this."""
        __tracebackhide__ = True
        call = self._need_call("asked")
        if not any(event.kind == "ask" and event.id == call.id for event in self._events):
            raise self._error(f"expected that the client is asked about {call.name}; it was not")
        return self

    def denied(self, message: str = "") -> Self:
        """The call was denied, with a reason that contains this text."""
        __tracebackhide__ = True
        call = self._need_call("denied")
        if not self._is_denied(call):
            raise self._error(f"expected that {call.name} is denied; it was not")
        return self._check_result(call, message, is_error=True)

    def allowed(self) -> Self:
        """The call was not denied."""
        __tracebackhide__ = True
        call = self._need_call("allowed")
        if self._is_denied(call):
            raise self._error(f"expected that {call.name} is allowed; it was denied")
        return self

    def returned(self, text: str = "") -> Self:
        """The tool succeeded, with a result that contains this text."""
        __tracebackhide__ = True
        return self._check_result(self._need_call("returned"), text, is_error=False)

    def failed(self, text: str = "") -> Self:
        """The tool failed, with an error that contains this text."""
        __tracebackhide__ = True
        return self._check_result(self._need_call("failed"), text, is_error=True)

    def said(self, text: str) -> Self:
        """The assistant says something that contains this text."""
        __tracebackhide__ = True
        if self._find("text", lambda event: text in event.text) is None:
            raise self._error(f"expected the assistant to say {text!r}; it did not")
        return self

    def turn_ended(self, subtype: str = "success", *, text: str = "", is_error: bool | None = None) -> Self:
        """The turn ends this way, with a result that contains this text."""
        __tracebackhide__ = True
        found = self._find("result", lambda event: True)
        if found is None:
            raise self._error("expected the turn to end; it has no result")
        if found.name != subtype:
            raise self._error(f"expected the turn to end with {subtype}; it ended with {found.name}")
        if is_error is not None and found.is_error != is_error:
            raise self._error(f"expected is_error={is_error}; found is_error={found.is_error}")
        if text not in found.text:
            raise self._error(f"expected the result to contain {text!r}; it is {found.text!r}")
        return self

    def _check_result(self, call: ConversationEvent, text: str, *, is_error: bool) -> Self:
        __tracebackhide__ = True
        results = [event for event in self._events if event.kind == "tool_result" and event.id == call.id]
        wanted = "an error" if is_error else "a result"
        if not results:
            raise self._error(f"expected {wanted} of {call.name}; the call has no result")
        if results[0].is_error != is_error:
            raise self._error(f"expected {wanted} of {call.name}; found {'an error' if not is_error else 'a result'}")
        if text not in results[0].text:
            raise self._error(f"expected {wanted} of {call.name} that contains {text!r}; it is {results[0].text!r}")
        return self

    def _is_denied(self, call: ConversationEvent) -> bool:
        return any(
            call.id in event.denied or (event.kind == "answer" and event.id == call.id and event.name == "deny")
            for event in self._events
        )

    def _find(self, kind: str, fits: Any) -> ConversationEvent | None:
        for at in range(self._next, len(self._events)):
            if self._events[at].kind == kind and fits(self._events[at]):
                self._next = at + 1
                return self._events[at]
        return None

    def _need_call(self, check: str) -> ConversationEvent:
        if self._call is None:
            raise TypeError(f"{check}() follows tool(): expect(messages).tool('Bash').{check}()")
        return self._call

    def _others(self, kind: str, name: str) -> str:
        names = [event.name for event in self._events[self._next :] if event.kind == kind]
        if name in names:
            return f"{name} was called with another input"
        return f"found calls of {', '.join(dict.fromkeys(names))}" if names else "no tool was called"

    def _error(self, text: str) -> AssertionError:
        shown = [f"{'>' if at == self._next else ' '} {at + 1:3} {event}" for at, event in enumerate(self._events)]
        lines = shown or ["  (empty)"]
        return AssertionError("\n".join([text, "", "The conversation (> is where the search began):", *lines]))


def expect(conversation: WireRecording | Iterable[Any]) -> Expectation:
    """Check a conversation: messages of an SDK, JSON objects, or a recording."""
    return Expectation(read_events(conversation))


def read_events(conversation: WireRecording | Iterable[Any]) -> list[ConversationEvent]:
    """What happened in a conversation."""
    if isinstance(conversation, WireRecording):
        lines = [line.data for line in conversation.lines if line.sender in ("client", "engine") and not line.eof]
        conversation = [decode_line(line) for line in lines]
    asked: dict[str, str] = {}
    return [event for message in conversation for event in events_of(to_json(message), asked)]


def to_json(message: Any) -> Json:
    """A message of an SDK in the form that it has on the wire, as far as it is checked."""
    if isinstance(message, dict):
        return message
    kind = type(message).__name__
    if kind in ("AssistantMessage", "UserMessage"):
        content = message.content
        blocks = [block_json(block) for block in content] if isinstance(content, list) else content
        return {"type": kind.removesuffix("Message").lower(), "message": {"content": blocks}}
    if kind == "ResultMessage":
        denials = [denial_json(each) for each in getattr(message, "permission_denials", None) or ()]
        fields = {name: getattr(message, name, None) for name in ("subtype", "is_error", "result", "errors")}
        return {"type": "result", **fields, "permission_denials": denials}
    return {}


def block_json(block: Any) -> Json:
    if isinstance(block, dict):
        return block
    kinds = {"TextBlock": "text", "ToolUseBlock": "tool_use", "ToolResultBlock": "tool_result"}
    names = ("id", "name", "input", "text", "tool_use_id", "content", "is_error")
    fields = {name: getattr(block, name) for name in names if hasattr(block, name)}
    return {"type": kinds.get(type(block).__name__, ""), **fields}


def denial_json(denial: Any) -> Json:
    return denial if isinstance(denial, dict) else {"tool_use_id": getattr(denial, "tool_use_id", "")}


def events_of(message: Json, asked: dict[str, str]) -> list[ConversationEvent]:
    """The events of a message. `asked` maps permission requests to their tool calls."""
    match message.get("type"):
        case "assistant" | "user":
            content = (message.get("message") or {}).get("content")
            return [event for block in content if (event := block_event(block))] if isinstance(content, list) else []
        case "result":
            denied = frozenset(str(each.get("tool_use_id")) for each in message.get("permission_denials") or ())
            text = message.get("result") or "; ".join(map(str, message.get("errors") or ()))
            is_error = message.get("is_error") is True
            return [
                ConversationEvent(
                    kind="result", name=str(message.get("subtype")), text=text, is_error=is_error, denied=denied
                )
            ]
        case "control_request" if (message.get("request") or {}).get("subtype") == "can_use_tool":
            request = message["request"]
            asked[str(message.get("request_id"))] = id = str(request.get("tool_use_id"))
            return [ConversationEvent(kind="ask", id=id, name=str(request.get("tool_name")))]
        case "control_response":
            response = message.get("response") or {}
            body = response.get("response") or {}
            call_id = asked.get(str(response.get("request_id")))
            if call_id is None:
                return []
            behavior = str(body.get("behavior") or "deny")
            return [ConversationEvent(kind="answer", id=call_id, name=behavior, text=str(body.get("message") or ""))]
    return []


def block_event(block: Json) -> ConversationEvent | None:
    match block.get("type"):
        case "text":
            return ConversationEvent(kind="text", text=str(block.get("text")))
        case "tool_use":
            return ConversationEvent(
                kind="tool", id=str(block.get("id")), name=str(block.get("name")), input=block.get("input") or {}
            )
        case "tool_result":
            text = text_in(block.get("content"))
            return ConversationEvent(
                kind="tool_result", id=str(block.get("tool_use_id")), text=text, is_error=block.get("is_error") is True
            )
    return None


def contains_input(found: Json, wanted: Json) -> bool:
    return all(key in found and found[key] == value for key, value in wanted.items())
