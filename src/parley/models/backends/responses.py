"""`openai-responses:NAME`: any server with the Responses API, streamed.

Address, key and errors are those of `openai:NAME`. Nothing is stored on the server, so every request has the whole
conversation, reasoning items included, which go back to the model that made them (reasoning_items.py). The conversion
of a message depends only on that message and the model, so the prefix of a request does not change and prompt caches
stay valid.

Of the stream, each output item becomes one block. Servers differ in what they omit: an item without deltas is read from
its `done` event, a response without items from its `completed` event, and a response in one piece is read as such. An
error names the item in which the stream broke off.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from functools import partial
from itertools import dropwhile
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from parley.errors import ModelError
from parley.models.accumulator import order_error
from parley.models.backends.base import AnswerStream
from parley.models.backends.converted_stream import (
    DONE,
    ConvertedStream,
    delta_event,
    make_usage,
    start_block,
    stop_block,
)
from parley.models.backends.openai import OpenAI, convert_result, data_url, image_url
from parley.models.backends.reasoning_items import PHASE, pack, unpack
from parley.models.base import ModelEvent, ModelRequest
from parley.models.catalog import EFFORTS, UNKNOWN_MODEL, ModelInfo, effort_for_budget
from parley.models.encoding import Convert
from parley.models.endpoint import ModelEndpoint
from parley.protocol.base import Json, Struct

BREAKS = ("connection_failed", "timeout_error")
NOT_REASONING = ("gpt-3", "gpt-4", "chatgpt-4")
"""How the names of OpenAI's models begin that reject the fields for reasoning."""
ENCRYPTED = "reasoning.encrypted_content"
OPTIONAL = (
    ENCRYPTED,
    "include",
    "reasoning.effort",
    "reasoning.summary",
    "reasoning",
    "max_output_tokens",
    "prompt_cache_key",
    "store",
    "phase",
)
"""Optional fields that a server may not support, the longer name first."""
STOP_REASONS = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}
"""By the reason of an incomplete response."""
REFUSAL_DELTA, SUMMARY_DELTA = "response.refusal.delta", "response.reasoning_summary_text.delta"
ITEMS = {"message": "a message", "function_call": "a function call", "reasoning": "a reasoning item"}
"""The items that become blocks, and how errors name them."""

# Status and kind by error code, as a response other than 200 would have them.
ERRORS = {
    "server_error": (500, "api_error"),
    "rate_limit_exceeded": (429, "rate_limit_error"),
    "insufficient_quota": (429, "billing_error"),
    "context_length_exceeded": (400, "prompt_too_long"),
}
RETRYABLE = ("server_error", "rate_limit_exceeded")
REFUSED = ("invalid_", "image_", "unsupported_", "empty_image", "failed_to_download", "data_residency")
REFUSED_ENDS = ("_policy", "_policy_violation")
"""How the codes of errors begin and end that a repeated request gets again."""


class OpenAIResponses(OpenAI):
    """One model on one server with the Responses API."""

    service: ClassVar[str] = "openai-responses"
    path: ClassVar[str] = "/responses"
    conversation_field: ClassVar[str] = "input"

    @classmethod
    def adapt_info(cls, known: ModelInfo, name: str, declared: Collection[str]) -> ModelInfo:
        """Effort and reasoning are part of the Responses API. Whether a server enforces schemas is declared."""
        has_schemas = "response_format" in declared
        if name.startswith(NOT_REASONING):
            return replace(known, thinking="never", efforts=(), supports_schemas=has_schemas)
        return replace(known, thinking="effort", thinking_off="disabled", efforts=EFFORTS, supports_schemas=has_schemas)

    def _build_fields(self, request: ModelRequest, endpoint: ModelEndpoint, dropped: Collection[str]) -> Json:
        return build_fields(request, self.name, dropped)

    def _make_convert(self, declared: Collection[str], dropped: Collection[str]) -> Convert:
        return partial(convert_message, model=self.name, has_phase="phase" not in dropped)

    def _convert_tool(self, tool: Json) -> list[Json]:
        return convert_tool(tool)

    def _opening(self, request: ModelRequest) -> list[Json]:
        return []

    def _stream_class(self) -> type[ConvertedStream]:
        return ResponsesStream

    def list_optional(self, request: ModelRequest, endpoint: ModelEndpoint) -> Iterator[str]:
        dropped = self.dropped.names
        convert = self._make_convert(endpoint.declared, dropped)
        items = (item for message in request.messages for item in convert(message))
        return optional_fields({**build_fields(request, self.name, dropped), **endpoint.extra_body}, items)

    def explain_error(self, exc: ModelError, stream: AnswerStream, endpoint: ModelEndpoint) -> None:
        """A reader must know whether reasoning was lost, so an error says in which item the stream broke."""
        assert isinstance(stream, ResponsesStream)
        if exc.kind in BREAKS and stream.has_started and "broke off" not in exc.message:
            exc.message = f"{exc.message} (the stream broke off {stream.place})"


# The request.


def build_fields(request: ModelRequest, name: str, dropped: Collection[str]) -> Json:
    """The body, with `tools` and `input` as they are in the request."""
    fields: Json = {"model": name, "stream": True, "store": False}
    if request.session_id:
        fields["prompt_cache_key"] = request.session_id
    if request.max_tokens != UNKNOWN_MODEL.max_output_tokens:
        # Otherwise it is only our default for an unknown model.
        fields["max_output_tokens"] = request.max_tokens
    if request.thinking is not None and ENCRYPTED not in dropped:
        fields["include"] = [ENCRYPTED]
    if reasoning := {key: value for key, value in reasoning_fields(request) if f"reasoning.{key}" not in dropped}:
        fields["reasoning"] = reasoning
    if request.output_schema is not None:
        fields["text"] = {"format": {"type": "json_schema", "name": "answer", "schema": request.output_schema}}
    if system := "\n\n".join(block["text"] for block in request.system if block.get("text")):
        fields["instructions"] = system
    if any("input_schema" in tool for tool in request.tools):
        fields["tools"] = request.tools
    kept = {key: value for key, value in fields.items() if key not in dropped}
    return {**kept, "input": request.messages}


def optional_fields(fields: Json, items: Iterable[Json]) -> Iterator[str]:
    """The optional fields of a body with these input items."""
    reasoning = fields.get("reasoning") or {}
    sent = {*fields, *(f"reasoning.{key}" for key in reasoning), *fields.get("include", ())}
    if any("phase" in item for item in items):
        sent.add("phase")
    return (name for name in OPTIONAL if name in sent)


def reasoning_fields(request: ModelRequest) -> Iterator[tuple[str, str]]:
    thinking = request.thinking or {}
    if (effort := choose_effort(request)) is not None:
        yield "effort", effort
    if thinking and thinking["type"] != "disabled" and thinking.get("display") != "omitted":
        yield "summary", "auto"


def choose_effort(request: ModelRequest) -> str | None:
    """The effort that the user asked for, as such or as a thinking budget; None for the model's default."""
    thinking = request.thinking or {}
    if thinking.get("type") == "disabled":
        return "none"
    budget = thinking.get("budget_tokens")
    if request.effort is not None or budget is None:
        return request.effort
    return effort_for_budget(budget)


def convert_tool(tool: Json) -> list[Json]:
    """A tool. Server tools of another backend are left out."""
    if "input_schema" not in tool:
        return []
    # Without `strict`, the API would make every parameter required.
    function = {"name": tool["name"], "description": tool.get("description", ""), "parameters": tool["input_schema"]}
    return [{"type": "function", **function, "strict": False}]


def convert_message(message: Json, model: str, has_phase: bool = True) -> list[Json]:
    """One message of the conversation as input items."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return convert_assistant(blocks, model, has_phase) if message["role"] == "assistant" else convert_user(blocks)


def convert_assistant(blocks: list[Json], model: str, has_phase: bool) -> list[Json]:
    """The items of an assistant message. Blocks of another backend's server tools are left out."""
    items = [item for block in blocks if (item := convert_block(block, model, has_phase)) is not None]
    # The API rejects reasoning that nothing follows.
    return list(dropwhile(lambda item: item["type"] == "reasoning", reversed(items)))[::-1]


def convert_block(block: Json, model: str, has_phase: bool) -> Json | None:
    match block.get("type"):
        case "text" if block.get("text"):
            item: Json = {"type": "message", "role": "assistant", "content": block["text"]}
            return {**item, "phase": block[PHASE]} if has_phase and block.get(PHASE) else item
        case "tool_use":
            arguments = msgspec.json.encode(block["input"]).decode()
            return {"type": "function_call", "call_id": block["id"], "name": block["name"], "arguments": arguments}
        case "thinking" | "redacted_thinking":
            return unpack(block, model)
    return None


def convert_user(blocks: list[Json]) -> list[Json]:
    """The items of a user message: first all tool results, then the rest in one message."""
    results = [block for block in blocks if block.get("type") == "tool_result"]
    parts = [part for block in blocks if block.get("type") != "tool_result" and (part := convert_part(block))]
    items: list[Json] = [
        {"type": "function_call_output", "call_id": result["tool_use_id"], "output": convert_output(result)}
        for result in results
    ]
    return [*items, {"type": "message", "role": "user", "content": parts}] if parts else items


def convert_output(result: Json) -> str | list[Json]:
    """The output of a tool call: a text, or a list of parts if it has images or documents."""
    content = result.get("content")
    if not isinstance(content, list) or all(block.get("type") not in ("image", "document") for block in content):
        return convert_result(result)
    parts = [part for block in content if (part := convert_part(block))]
    return [{"type": "input_text", "text": "Error:"}, *parts] if result.get("is_error") else parts


def convert_part(block: Json) -> Json | None:
    """One part of a message or output; None without an equivalent."""
    match block.get("type"):
        case "text":
            return {"type": "input_text", "text": block.get("text") or ""}
        case "image":
            return {"type": "input_image", "image_url": image_url(block["source"]), "detail": "auto"}
        case "document":
            return convert_document(block)
    return None


def convert_document(block: Json) -> Json:
    source, title = block["source"], block.get("title") or "document"
    if source.get("type") == "text":
        return {"type": "input_text", "text": f"{title}:\n{source.get('data', '')}"}
    if source.get("type") == "url":
        return {"type": "input_file", "file_url": source["url"]}
    return {"type": "input_file", "filename": title, "file_data": data_url(source)}


# The answer.


class PartialItem(Struct):
    """An output item that is still streaming."""

    kind: str
    output_index: int
    id: str = ""
    phase: str | None = None
    block: int | None = None
    """The index of its block; None as long as it has none."""
    arguments: str = ""
    has_text: bool = False
    part: tuple[str, int] | None = None
    """The part of the reasoning that streams."""
    is_closed: bool = False


class ResponsesStream(ConvertedStream):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._incomplete: str | None = None
        self._items: list[PartialItem] = []

    @property
    def can_end_early(self) -> bool:
        """Whether the answer was complete before the connection broke."""
        return self.is_done

    @property
    def place(self) -> str:
        """Where the stream is, for errors."""
        item = next((item for item in reversed(self._items) if not item.is_closed), None)
        return "between two items" if item is None else f"inside {ITEMS[item.kind]}"

    def feed(self, data: bytes) -> list[ModelEvent]:
        return [] if data == DONE or self.is_done else super().feed(data)

    def end(self) -> Iterator[ModelEvent]:
        """The events after the last one of the server. Raises ModelError if the response is incomplete."""
        if not self.is_done:
            where = self.place if self.has_started else "before it began"
            raise ModelError(f"the model's stream broke off {where}", kind="connection_failed", retryable=True)
        for item in self._items:
            yield from self._close(item)
        calls = any(item.kind == "function_call" for item in self._items)
        yield from self.end_message(STOP_REASONS.get(self._incomplete or "", "tool_use" if calls else "end_turn"))

    def convert(self, event: Json) -> Iterator[ModelEvent]:
        kind = event.get("type")
        if kind == "error" or (event.get("error") and event.get("object") != "response"):
            raise response_error(event.get("error") or event)
        if kind is None and ("output" in event or event.get("object") == "response"):
            # A server that does not stream sends the response itself.
            yield from self.start(event.get("model"))
            yield from self._finish(event)
        elif (handler := HANDLERS.get(str(kind))) is not None:
            yield from self.start((event.get("response") or {}).get("model"))
            yield from handler(self, event)

    def _begin(self, event: Json) -> Iterator[ModelEvent]:
        """The response was created; `_start` has sent its start."""
        yield from ()

    # Items.

    def _item_added(self, event: Json) -> Iterator[ModelEvent]:
        item, at = event["item"], event.get("output_index") or 0
        if item.get("type") not in ITEMS:
            return  # an item of a tool that runs on the server
        id = str(item.get("id") or "")
        if self._is_known(item, at, id):
            raise order_error(f"{ITEMS[item['type']]} started twice")
        yield from self._add(item, at, id)

    def _is_known(self, item: Json, at: int, id: str) -> bool:
        return any((known.kind, known.output_index, known.id) == (item["type"], at, id) for known in self._items)

    def _add(self, item: Json, at: int, id: str) -> Iterator[ModelEvent]:
        for earlier in self._items:
            # Clients expect one block after the other. Function calls may still lack arguments.
            if earlier.kind != "function_call":
                yield from self._close(earlier)
        partial = PartialItem(kind=item["type"], output_index=at, id=id, phase=item.get("phase"))
        self._items.append(partial)
        if partial.kind == "function_call":
            call_id = self.claim_call_id(str(item.get("call_id") or ""))
            yield self._open(partial, {"type": "tool_use", "id": call_id, "name": item["name"], "input": {}})

    def _item_done(self, event: Json) -> Iterator[ModelEvent]:
        item, at = event["item"], event.get("output_index") or 0
        if item.get("type") not in ITEMS:
            return
        id = str(item.get("id") or "")
        partial = self._find(event, item["type"], id)
        if partial is None:
            if self._is_known(item, at, id):
                return  # its block has ended
            yield from self._add(item, at, id)
            partial = self._items[-1]
        yield from FINISHERS[partial.kind](self, partial, item)
        yield from self._close(partial)

    def _finish_message(self, partial: PartialItem, item: Json) -> Iterator[ModelEvent]:
        parts = item.get("content") or []
        self.is_refused = self.is_refused or any(part.get("type") == "refusal" for part in parts)
        if not partial.has_text:
            for part in parts:
                yield from self._append_text(partial, part.get("text") or part.get("refusal") or "")

    def _finish_call(self, partial: PartialItem, item: Json) -> Iterator[ModelEvent]:
        yield from self._append_rest(partial, item.get("arguments"))

    def _finish_reasoning(self, partial: PartialItem, item: Json) -> Iterator[ModelEvent]:
        if not partial.has_text:
            parts = [("summary", part) for part in item.get("summary") or ()]
            for at, (field, part) in enumerate(parts or [("content", part) for part in item.get("content") or ()]):
                yield from self._append_thinking(partial, (field, at), part.get("text") or "")
        signature = pack(self.model, item)
        if not signature:
            return
        if partial.block is None:
            yield self._open(partial, {"type": "redacted_thinking", "data": signature})
        else:
            yield delta_event(partial.block, {"type": "signature_delta", "signature": signature})

    def _find(self, event: Json, kind: str, id: str = "") -> PartialItem | None:
        """The open item that an event is about. Some servers use one index for all items, others change the ids."""
        at, id = event.get("output_index") or 0, id or str(event.get("item_id") or "")
        found = [item for item in self._items if not item.is_closed and item.kind == kind]
        same = [item for item in found if item.output_index == at] or [item for item in found if item.id == id]
        return same[-1] if same else None

    def _find_or_add(self, event: Json, kind: str) -> Generator[ModelEvent, None, PartialItem]:
        """The open item that a delta is about. It is new if the server did not announce it."""
        found = self._find(event, kind)
        if found is not None:
            return found
        yield from self._add({"type": kind}, event.get("output_index") or 0, str(event.get("item_id") or ""))
        return self._items[-1]

    def _open(self, item: PartialItem, block: Json) -> ModelEvent:
        item.block = self.next_block
        self.next_block += 1
        return start_block(item.block, block)

    def _close(self, item: PartialItem) -> Iterator[ModelEvent]:
        if not item.is_closed:
            item.is_closed = True
            if item.block is not None:
                yield stop_block(item.block)

    # Deltas.

    def _text(self, event: Json) -> Iterator[ModelEvent]:
        self.is_refused = self.is_refused or event["type"] == REFUSAL_DELTA
        item = yield from self._find_or_add(event, "message")
        yield from self._append_text(item, event["delta"])

    def _reasoning(self, event: Json) -> Iterator[ModelEvent]:
        field = "summary" if event["type"] == SUMMARY_DELTA else "content"
        item = yield from self._find_or_add(event, "reasoning")
        yield from self._append_thinking(item, (field, event.get(f"{field}_index") or 0), event["delta"])

    def _arguments(self, event: Json) -> Iterator[ModelEvent]:
        yield from self._append_arguments(self._find_call(event), event["delta"])

    def _arguments_done(self, event: Json) -> Iterator[ModelEvent]:
        item = self._find_call(event)
        yield from self._append_rest(item, event.get("arguments"))
        if item.arguments:
            yield from self._close(item)

    def _find_call(self, event: Json) -> PartialItem:
        item = self._find(event, "function_call")
        if item is None:
            raise order_error("arguments arrived for a function call that is not open")
        return item

    def _append_text(self, item: PartialItem, text: str) -> Iterator[ModelEvent]:
        if not text:
            return
        if item.block is None:
            yield self._open(item, {"type": "text", "text": "", **({PHASE: item.phase} if item.phase else {})})
        item.has_text = True
        assert item.block is not None
        yield self.add_delta(item.block, "text_delta", "text", text)

    def _append_thinking(self, item: PartialItem, part: tuple[str, int], text: str) -> Iterator[ModelEvent]:
        if not text:
            return
        if item.block is None:
            yield self._open(item, {"type": "thinking", "thinking": "", "signature": ""})
        elif item.part != part:
            text = f"\n\n{text}"
        item.part, item.has_text = part, True
        assert item.block is not None
        yield self.add_delta(item.block, "thinking_delta", "thinking", text)

    def _append_arguments(self, item: PartialItem, text: str) -> Iterator[ModelEvent]:
        if text:
            item.arguments += text
            assert item.block is not None
            yield self.add_delta(item.block, "input_json_delta", "partial_json", text)

    def _append_rest(self, item: PartialItem, whole: str | None) -> Iterator[ModelEvent]:
        """Add the arguments that no delta had."""
        if whole and whole.startswith(item.arguments):
            yield from self._append_arguments(item, whole[len(item.arguments) :])

    # The end.

    def _finish(self, response: Json) -> Iterator[ModelEvent]:
        """The end of the response, which repeats all items."""
        status = response.get("status") or "completed"
        if status == "failed":
            raise response_error(response.get("error") or {})
        if status not in ("completed", "incomplete"):
            raise ModelError(f"the model's server ended its answer with the status {status!r}", retryable=True)
        if not self._items:
            for at, item in enumerate(response.get("output") or ()):
                yield from self._item_done({"output_index": at, "item": item})
        self.is_done = True
        self._incomplete = (response.get("incomplete_details") or {}).get("reason")
        usage = response.get("usage") or {}
        if usage.get("output_tokens") is not None:
            self.reported_usage = convert_usage(usage)

    def _response_done(self, event: Json) -> Iterator[ModelEvent]:
        yield from self._finish(event["response"])


HANDLERS: dict[str, Callable[[ResponsesStream, Json], Iterator[ModelEvent]]] = {
    "response.created": ResponsesStream._begin,
    "response.in_progress": ResponsesStream._begin,
    "response.output_item.added": ResponsesStream._item_added,
    "response.output_item.done": ResponsesStream._item_done,
    "response.output_text.delta": ResponsesStream._text,
    REFUSAL_DELTA: ResponsesStream._text,
    SUMMARY_DELTA: ResponsesStream._reasoning,
    "response.reasoning_text.delta": ResponsesStream._reasoning,
    "response.function_call_arguments.delta": ResponsesStream._arguments,
    "response.function_call_arguments.done": ResponsesStream._arguments_done,
    "response.completed": ResponsesStream._response_done,
    "response.incomplete": ResponsesStream._response_done,
    "response.failed": ResponsesStream._response_done,
}
"""By the type of an event. Others repeat what these said, or are about tools that run on the server."""
FINISHERS: dict[str, Callable[[ResponsesStream, PartialItem, Json], Iterator[ModelEvent]]] = {
    "message": ResponsesStream._finish_message,
    "function_call": ResponsesStream._finish_call,
    "reasoning": ResponsesStream._finish_reasoning,
}


def response_error(error: object) -> ModelError:
    """The error of an `error` event or a failed response, with the error types of the Messages API."""
    details = error if isinstance(error, dict) else {"message": str(error)}
    code = str(details.get("code") or details.get("type") or "")
    text = str(details.get("message") or "the model's server failed during its answer without giving a reason")
    if code.startswith(REFUSED) or code.endswith(REFUSED_ENDS):
        return ModelError(text, status=400, kind="invalid_request_error")
    status, kind = ERRORS.get(code, (None, "api_error"))
    return ModelError(text, status=status, kind=kind, retryable=code in RETRYABLE or code not in ERRORS)


def convert_usage(usage: Json) -> Json:
    details = usage.get("input_tokens_details") or {}
    read, written = details.get("cached_tokens") or 0, details.get("cache_write_tokens") or 0
    thinking = (usage.get("output_tokens_details") or {}).get("reasoning_tokens") or 0
    input_tokens, output_tokens = (usage.get("input_tokens") or 0) - read - written, usage.get("output_tokens") or 0
    return make_usage(input_tokens, output_tokens, read=read, written=written, thinking=thinking)
