"""`openai:NAME`: any server with the chat completions API, streamed.

The engine sees the Messages API: the request and the stream are converted. The server and its key come from the
environment. They never come from the model's name, which project settings can set.

One of our messages becomes one or more chat messages: tool results are separate messages, and images in tool results
follow in a user message. The conversion of a message depends only on that message, so the prefix of a request does
not change and prompt caches stay valid.

Servers differ in what they omit of a stream. Missing usage is estimated. A missing finish reason is replaced by the end
of the stream. Tool calls without an index, id or name, with one index for all calls, or with all arguments in one piece
are converted correctly. A stream that ends without any sign of completion gets no `message_stop`, like one that was cut
off.

See also: `responses.py` for the Responses API.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from parley.errors import ModelError
from parley.models.backends.base import AnswerStream, HttpModel
from parley.models.backends.converted_stream import DONE, ConvertedStream, make_usage, start_block, stop_block
from parley.models.base import ModelEvent, ModelRequest
from parley.models.catalog import EFFORTS, UNKNOWN_MODEL, ModelInfo
from parley.models.encoding import Convert, Pieces, PrefixEncoder, encode_object
from parley.models.endpoint import ModelEndpoint
from parley.models.failures import read_error
from parley.protocol.base import Json, Struct

USAGE = "stream_options"
OPTIONAL = (USAGE, "max_tokens", "max_completion_tokens", "reasoning_effort", "reasoning_content")
"""Optional fields that a server may not support."""
REASONING = ("reasoning_content", "reasoning")
STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
OUT_OF_MONEY = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
TOO_LONG = ("context_length_exceeded", "string_above_max_length")


class OpenAI(HttpModel):
    """One model on one server."""

    service: ClassVar[str] = "openai"
    path: ClassVar[str] = "/chat/completions"
    error_kinds: ClassVar[Mapping[int, str]] = {
        400: "invalid_request_error",
        401: "authentication_error",
        402: "billing_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        422: "invalid_request_error",
        429: "rate_limit_error",
        503: "overloaded_error",
    }
    conversation_field: ClassVar[str] = "messages"

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._tools = PrefixEncoder(self._convert_tool)
        self._messages = PrefixEncoder()
        self._converts_for: tuple[frozenset[str], frozenset[str]] | None = None
        """The declared and dropped fields that messages are converted for."""

    @classmethod
    def adapt_info(cls, known: ModelInfo, name: str, declared: Collection[str]) -> ModelInfo:
        """What is known of a model on a server that supports the declared fields."""
        efforts = EFFORTS if "reasoning_effort" in declared else ()
        return replace(known, efforts=efforts, supports_schemas="response_format" in declared)

    def encode_body(self, request: ModelRequest, endpoint: ModelEndpoint, dropped: Collection[str]) -> Pieces:
        options = endpoint.declared, frozenset(dropped)
        if options != self._converts_for:
            self._converts_for = options
            self._messages = PrefixEncoder(self._make_convert(*options), collect_call_ids)
        fields = {**self._build_fields(request, endpoint, dropped), **endpoint.extra_body}
        opening = [msgspec.json.encode(message) for message in self._opening(request)]
        lists: dict[str, Pieces] = {self.conversation_field: [*opening, self._messages.encode(request.messages)]}
        if "tools" in fields:
            lists["tools"] = [self._tools.encode(request.tools)]
        return encode_object(fields, {name: lists[name] for name in lists if name not in endpoint.extra_body})

    def _build_fields(self, request: ModelRequest, endpoint: ModelEndpoint, dropped: Collection[str]) -> Json:
        """The body with the tools and messages not converted."""
        return build_fields(request, self.name, endpoint.declared, dropped)

    def _make_convert(self, declared: Collection[str], dropped: Collection[str]) -> Convert:
        """The conversion of messages."""
        return partial(convert_message, keeps_reasoning=keeps_reasoning(declared, dropped))

    def _convert_tool(self, tool: Json) -> list[Json]:
        return convert_tool(tool)

    def _opening(self, request: ModelRequest) -> list[Json]:
        """The converted messages before the conversation."""
        return system_messages(request)

    def open_stream(self, body_bytes: int) -> AnswerStream:
        taken = self._messages.list_names()
        return self._stream_class()(model=self.name, new_id=self.new_id, taken=taken, input_chars=body_bytes)

    def _stream_class(self) -> type[ConvertedStream]:
        return ChatStream

    def list_optional(self, request: ModelRequest, endpoint: ModelEndpoint) -> Iterator[str]:
        fields = {**self._build_fields(request, endpoint, self.dropped.names), **endpoint.extra_body}
        return (field for field in OPTIONAL if field in fields)

    def parse_error(self, status: int, headers: Mapping[str, str], content: bytes) -> ModelError:
        error = super().parse_error(status, headers, content)
        details = read_error(content)
        code, field = details.get("code"), details.get("param")
        if isinstance(field, str) and field not in error.message:
            error.message += f" (field {field!r})"
        if code in OUT_OF_MONEY:
            # The status is 429, but waiting does not help.
            error.kind, error.retryable = "billing_error", False
            error.message += " (billing)"
        elif code in TOO_LONG:
            error.kind = "prompt_too_long"
        return error


# The request.


def build_fields(request: ModelRequest, name: str, declared: Collection[str], dropped: Collection[str]) -> Json:
    """The body, with `tools` and `messages` as they are in the request."""
    fields: Json = {"model": name, "stream": True}
    if USAGE not in dropped:
        fields[USAGE] = {"include_usage": True}
    fields.update(max_tokens_field(request, declared, dropped))
    if request.effort is not None and "reasoning_effort" in declared and "reasoning_effort" not in dropped:
        fields["reasoning_effort"] = request.effort
    if request.output_schema is not None:
        schema = {"name": "answer", "schema": request.output_schema}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    if any("input_schema" in tool for tool in request.tools):
        fields["tools"] = request.tools
    return {**fields, "messages": request.messages}


def keeps_reasoning(declared: Collection[str], dropped: Collection[str]) -> bool:
    """Whether the server takes reasoning back."""
    return "reasoning_content" in declared and "reasoning_content" not in dropped


def max_tokens_field(request: ModelRequest, declared: Collection[str], dropped: Collection[str]) -> Json:
    """The limit of output tokens; omitted if it is only our default for an unknown model."""
    if request.max_tokens == UNKNOWN_MODEL.max_output_tokens:
        return {}
    # A server that rejects one name usually accepts the other.
    names = ["max_tokens", "max_completion_tokens"]
    if "max_completion_tokens" in declared:
        names.reverse()
    return next(({name: request.max_tokens} for name in names if name not in dropped), {})


def convert_tool(tool: Json) -> list[Json]:
    """A tool. Server tools of another backend are left out."""
    if "input_schema" not in tool:
        return []
    function = {"name": tool["name"], "description": tool.get("description", ""), "parameters": tool["input_schema"]}
    return [{"type": "function", "function": function}]


def system_messages(request: ModelRequest) -> list[Json]:
    """The messages before the conversation."""
    system = "\n\n".join(block["text"] for block in request.system if block.get("text"))
    return [{"role": "system", "content": system}] if system else []


def convert_message(message: Json, keeps_reasoning: bool = False) -> list[Json]:
    """One message of the conversation as chat messages."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return convert_assistant(blocks, keeps_reasoning) if message["role"] == "assistant" else convert_user(blocks)


def collect_call_ids(message: Json) -> Iterator[str]:
    """The ids of the tool calls in a message."""
    content = message["content"]
    for block in content if isinstance(content, list) else ():
        if block.get("type") == "tool_use":
            yield block["id"]


def convert_assistant(blocks: list[Json], keeps_reasoning: bool) -> list[Json]:
    """An assistant message. Blocks of another backend's server tools are left out."""
    text = join_texts(blocks, "text", "text")
    reasoning = join_texts(blocks, "thinking", "thinking") if keeps_reasoning else ""
    calls = [convert_call(block) for block in blocks if block.get("type") == "tool_use"]
    if not text and not calls:
        return []
    # Some servers reject `null` beside calls; all accept an empty text.
    converted: Json = {"role": "assistant", "content": text}
    if reasoning:
        converted["reasoning_content"] = reasoning
    return [{**converted, "tool_calls": calls} if calls else converted]


def convert_call(block: Json) -> Json:
    function = {"name": block["name"], "arguments": msgspec.json.encode(block["input"]).decode()}
    return {"id": block["id"], "type": "function", "function": function}


def convert_user(blocks: list[Json]) -> list[Json]:
    """A user message: first all tool results, then the rest in one message."""
    results = [block for block in blocks if block.get("type") == "tool_result"]
    parts = [part for result in results for part in collect_images(result)]
    parts += [part for block in blocks if block.get("type") != "tool_result" and (part := convert_part(block))]
    found = [
        {"role": "tool", "tool_call_id": result["tool_use_id"], "content": convert_result(result)} for result in results
    ]
    if not parts:
        return found
    if all(part["type"] == "text" for part in parts):
        # Small servers support only plain text.
        return [*found, {"role": "user", "content": "\n\n".join(part["text"] for part in parts)}]
    return [*found, {"role": "user", "content": parts}]


def convert_result(result: Json) -> str:
    """The text of a tool result. Errors get a prefix, because there is no field for them."""
    content = result.get("content") or ""
    text = content if isinstance(content, str) else "\n".join(text_of(block) for block in content)
    is_error = result.get("is_error") and not text.lower().startswith(("error", "<tool_use_error"))
    return f"Error: {text}" if is_error else text


def text_of(block: Json) -> str:
    if block.get("type") == "text":
        return str(block.get("text") or "")
    if block.get("type") in PARTS:
        return f"[{block['type']}: see the next message]"
    return msgspec.json.encode(block).decode()


def collect_images(result: Json) -> list[Json]:
    """Images and documents in a tool result."""
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    shown = [PARTS[block["type"]](block) for block in blocks if block.get("type") in PARTS]
    return [convert_text({"text": f"From the tool call {result['tool_use_id']}:"}), *shown] if shown else []


def convert_part(block: Json) -> Json | None:
    """One part of a user message; None without an equivalent."""
    convert = {"text": convert_text, **PARTS}.get(str(block.get("type")))
    return None if convert is None else convert(block)


def convert_text(block: Json) -> Json:
    return {"type": "text", "text": block.get("text") or ""}


def convert_image(block: Json) -> Json:
    return {"type": "image_url", "image_url": {"url": image_url(block["source"])}}


def convert_document(block: Json) -> Json:
    source, title = block["source"], block.get("title") or "document"
    if source.get("type") == "text":
        return {"type": "text", "text": f"{title}:\n{source.get('data', '')}"}
    if source.get("type") == "url":
        return {"type": "text", "text": f"{title}: {source['url']}"}
    return {"type": "file", "file": {"filename": title, "file_data": data_url(source)}}


PARTS: dict[str, Callable[[Json], Json]] = {"image": convert_image, "document": convert_document}


def image_url(source: Json) -> str:
    return str(source["url"]) if source.get("type") == "url" else data_url(source)


def data_url(source: Json) -> str:
    return f"data:{source.get('media_type', 'application/octet-stream')};base64,{source.get('data', '')}"


def join_texts(blocks: list[Json], kind: str, field: str) -> str:
    return "\n".join(block[field] for block in blocks if block.get("type") == kind and block.get(field))


# The answer.


class PartialCall(Struct):
    """A tool call that is still streaming."""

    index: int
    """The index of its block."""
    id: str
    name: str = ""
    arguments: str = ""
    is_open: bool = False
    is_closed: bool = False


class ChatStream(ConvertedStream):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._choice: Any = None
        self._finish: str | None = None
        self._calls: list[PartialCall] = []
        self._by_key: dict[Any, PartialCall] = {}

    def feed(self, data: bytes) -> list[ModelEvent]:
        if data == DONE:
            self.is_done = True
            return []
        return super().feed(data)

    def convert(self, chunk: Json) -> Iterator[ModelEvent]:
        if error := chunk.get("error"):
            details = error if isinstance(error, dict) else {"message": str(error)}
            text = str(details.get("message") or "the model's stream ended early")
            raise ModelError(text, kind=str(details.get("type") or "api_error"), retryable=True)
        yield from self.start(chunk.get("model"))
        usage = chunk.get("usage") or (chunk.get("x_groq") or {}).get("usage") or {}
        if usage.get("completion_tokens") is not None:
            self.reported_usage = convert_usage(usage)
        for choice in chunk.get("choices") or []:
            if self._choice is None:
                self._choice = choice.get("index") or 0
            if (choice.get("index") or 0) != self._choice:
                continue  # another choice for the same request
            # Servers that do not really stream send `message`.
            delta = choice.get("delta") or choice.get("message") or {}
            yield from self._grow(delta)
            self._finish = read_stop_reason(choice) or self._finish

    @property
    def is_complete(self) -> bool:
        """Whether the answer is known to be complete."""
        return self.has_started and (self.is_done or self._finish is not None)

    @property
    def can_end_early(self) -> bool:
        """The same after a broken connection. Some servers send the finish reason before the rest of a call."""
        return self.is_complete and (self.is_done or all(is_complete(call.arguments) for call in self._calls))

    def end(self) -> Iterator[ModelEvent]:
        """The events after the last chunk."""
        if not self.is_complete:
            return
        yield from self.close_text()
        for call in self._calls:
            yield from self._close_call(call)
        reason = STOP_REASONS.get(self._finish or "stop", "end_turn")
        yield from self.end_message("tool_use" if self._calls and reason == "end_turn" else reason)

    def _grow(self, delta: Json) -> Iterator[ModelEvent]:
        for key in REASONING:
            if isinstance(delta.get(key), str) and delta[key]:
                yield from self.add_text("thinking", delta[key])
                break
        for kind, text in text_of_content(delta.get("content")):
            yield from self.add_text(kind, text)
        if isinstance(delta.get("refusal"), str) and delta["refusal"]:
            yield from self.add_text("text", delta["refusal"])
            self.is_refused = True
        calls = delta.get("tool_calls") or (
            [{"function": delta["function_call"]}] if delta.get("function_call") else []
        )
        for piece in calls:
            yield from self._call(piece)

    def _call(self, piece: Json) -> Iterator[ModelEvent]:
        """Add a piece of a tool call."""
        yield from self.close_text()
        function = piece.get("function") or {}
        known = self._by_key.get(piece.get("id") or None)
        if known is not None and known.arguments == function.get("arguments") and is_complete(known.arguments):
            return  # the whole call again
        call = self._call_of(piece, function)
        if call is None:
            call = self._new_call(piece)
            for earlier in self._calls[:-1]:
                # Clients expect one call after the other. An incomplete call stays open.
                if is_complete(earlier.arguments):
                    yield from self._close_call(earlier)
        if not call.is_open and function.get("name") and function["name"] != call.name:
            call.name += function["name"]
        arguments = function.get("arguments")
        if isinstance(arguments, dict):
            arguments = msgspec.json.encode(arguments).decode()
        if arguments and not call.is_closed:
            yield from self._open_call(call)
            call.arguments += arguments
            yield self.add_delta(call.index, "input_json_delta", "partial_json", arguments)

    def _call_of(self, piece: Json, function: Json) -> PartialCall | None:
        """The call that a piece belongs to; None for a new one."""
        index, id = piece.get("index"), piece.get("id") or None
        if index is None and id is None:
            last = self._calls[-1] if self._calls else None
            if last is None or is_new_call(last, function):
                return None
            return None if function.get("name") and last.name and not last.arguments else last
        same_id, same_index = self._by_key.get(id), self._by_key.get(index)
        if index is None:
            return same_id
        # One index for all calls: a piece with another id, or with a name after complete arguments, is a new call.
        if same_index is None or (id is not None and same_id is not same_index):
            return None
        return None if is_new_call(same_index, function) else same_index

    def _new_call(self, piece: Json) -> PartialCall:
        id = piece.get("id") or ""
        call = PartialCall(index=self.next_block, id=self.claim_call_id(id))
        self.next_block += 1
        self._calls.append(call)
        for key in (piece.get("index"), id or None):
            if key is not None:
                self._by_key[key] = call
        return call

    def _open_call(self, call: PartialCall) -> Iterator[ModelEvent]:
        if not call.is_open:
            call.is_open = True
            yield start_block(call.index, {"type": "tool_use", "id": call.id, "name": call.name, "input": {}})

    def _close_call(self, call: PartialCall) -> Iterator[ModelEvent]:
        if not call.is_closed:
            yield from self._open_call(call)
            call.is_closed = True
            yield stop_block(call.index)


def is_new_call(call: PartialCall, function: Json) -> bool:
    """Whether a piece with a function name starts a new call. Some servers repeat the name."""
    return bool(call.name and function.get("name") and function.get("arguments") and is_complete(call.arguments))


def read_stop_reason(choice: Json) -> str | None:
    """The finish reason, if any. Raises ModelError if the answer failed."""
    reason = choice.get("finish_reason")
    if reason == "error":
        raise ModelError("the model's server failed during its answer without giving a reason", retryable=True)
    return reason if isinstance(reason, str) and reason else None


def text_of_content(content: Any) -> Iterator[tuple[str, str]]:
    """The text and thinking of a delta. Some servers send parts instead of a string."""
    if isinstance(content, str) and content:
        yield "text", content
    for part in content if isinstance(content, list) else []:
        if isinstance(part.get("text"), str) and part["text"]:
            yield "text", part["text"]
        thought = part.get("thinking")
        texts = [thought] if isinstance(thought, str) else [piece.get("text", "") for piece in thought or []]
        yield from (("thinking", text) for text in texts if text)


def is_complete(arguments: str) -> bool:
    """Whether the arguments of a call are complete."""
    try:
        msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def convert_usage(usage: Json) -> Json:
    read = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0
    thinking = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
    input_tokens, output_tokens = (usage.get("prompt_tokens") or 0) - read, usage.get("completion_tokens") or 0
    return make_usage(input_tokens, output_tokens, read=read, thinking=thinking)
