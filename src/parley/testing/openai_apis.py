"""OpenAI's chat completions API and Responses API, server side.

Requests are converted to the Messages API, answers from it. The client sides are `models/backends/openai.py` and
`models/backends/responses.py`. Client and server share no code, so each tests the other.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, ClassVar

import msgspec

from parley.errors import ModelError
from parley.models.accumulator import parse_input
from parley.models.base import ModelEvent, ModelRequest
from parley.protocol.base import Json, Struct
from parley.testing.messages_api import ApiRequest, request_error

STOP_REASONS = {"max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}
"""Others become `stop`."""
INCOMPLETE = {"max_tokens": "max_output_tokens", "refusal": "content_filter"}
"""The stop reasons that make a response incomplete."""
EMPTY: dict[str, Json] = {
    "message": {"content": []},
    "reasoning": {"summary": [], "encrypted_content": None},
    "function_call": {"arguments": ""},
}
"""What an item starts with."""
DONE = b"data: [DONE]\n\n"


class _StreamOptions(Struct, frozen=True):
    include_usage: bool = False


class _Body(Struct, frozen=True, kw_only=True):
    model: str
    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    tools: list[Json] = []


class _ChatBody(_Body, frozen=True, kw_only=True):
    messages: list[Json]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None


class _ResponsesBody(_Body, frozen=True, kw_only=True):
    input: str | list[Json]
    instructions: str | None = None
    max_output_tokens: int | None = None


class OpenAiApi:
    """What the two APIs share."""

    body: ClassVar[type[_Body]]
    item: ClassVar[str]
    """What an error calls an item of the conversation."""

    def read(self, raw: bytes) -> ApiRequest:
        try:
            body = msgspec.json.decode(raw, type=self.body)
            request = self.convert(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise request_error(400, str(exc)) from None
        except (KeyError, TypeError, AttributeError) as exc:
            raise request_error(400, f"invalid {self.item}: {exc!r}") from None
        return ApiRequest(
            request, bool(body.stream), body.stream_options is not None and body.stream_options.include_usage
        )

    def convert(self, body: Any) -> ModelRequest:
        raise NotImplementedError

    def error(self, exc: ModelError) -> Json:
        return {"error": {"message": exc.message, "type": exc.kind or "api_error", "param": None, "code": None}}


class ChatCompletionsApi(OpenAiApi):
    body, item = _ChatBody, "message"

    def convert(self, body: _ChatBody) -> ModelRequest:
        system = [block for one in body.messages if is_system(one) for block in convert_content(one.get("content"))]
        return ModelRequest(
            model=body.model,
            system=system,
            messages=convert_messages(body.messages),
            tools=[tool.get("function") or tool for tool in body.tools],
            max_tokens=body.max_completion_tokens or body.max_tokens or 0,
        )

    async def encode_events(
        self, events: AsyncIterator[ModelEvent], request: ApiRequest
    ) -> AsyncGenerator[bytes, None]:
        encoder = ChunkEncoder(request.with_usage)
        async for event in events:
            for chunk in encoder.encode(event):
                yield b"data: %b\n\n" % msgspec.json.encode(chunk)
            if event.type == "ping":
                yield b": ping\n\n"
            elif event.type == "message_stop":
                yield DONE

    def encode_message(self, message: Json) -> Json:
        converted: Json = {"role": "assistant", "content": join_texts(message, "text"), "refusal": None}
        if thought := join_texts(message, "thinking"):
            converted["reasoning_content"] = thought
        calls = [block for block in message["content"] if block["type"] == "tool_use"]
        if calls:
            converted["tool_calls"] = [
                {"id": call["id"], "type": "function", "function": build_function(call["name"], call["input"])}
                for call in calls
            ]
        choice = {
            "index": 0,
            "message": converted,
            "finish_reason": finish_reason(message["stop_reason"]),
            "logprobs": None,
        }
        head = {"id": message["id"], "object": "chat.completion", "created": 0, "model": message["model"]}
        return {**head, "choices": [choice], "usage": chat_usage(message["usage"])}


class ChunkEncoder:
    """Encodes one answer, event by event."""

    def __init__(self, with_usage: bool) -> None:
        self._with_usage = with_usage
        self._head: Json = {}
        self._usage: Json = {}
        self._calls: dict[int, int] = {}
        """The tool call index of each block."""

    def encode(self, event: ModelEvent) -> list[Json]:
        """The chunks for an event."""
        match event.type:
            case "message_start" if event.message is not None:
                message = event.message
                self._head = {"id": message["id"], "object": "chat.completion.chunk", "created": 0}
                self._head["model"] = message["model"]
                self._usage = message.get("usage") or {}
                return [self._chunk({"role": "assistant", "content": ""})]
            case "content_block_start" if (event.content_block or {}).get("type") == "tool_use":
                block = event.content_block or {}
                number = self._calls.setdefault(event.index, len(self._calls))
                call = {"index": number, "id": block["id"], "type": "function"}
                return [self._chunk({"tool_calls": [{**call, "function": {"name": block["name"], "arguments": ""}}]})]
            case "content_block_delta" if event.delta is not None:
                return [self._chunk(delta) for delta in self._encode_delta(event)]
            case "message_delta" if event.delta is not None:
                self._usage = {**self._usage, **(event.usage or {})}
                return [self._chunk({}, finish_reason(event.delta.stop_reason))]
            case "message_stop" if self._with_usage:
                return [{**self._head, "choices": [], "usage": chat_usage(self._usage)}]
        return []

    def _encode_delta(self, event: ModelEvent) -> list[Json]:
        delta = event.delta
        assert delta is not None
        if delta.text:
            return [{"content": delta.text}]
        if delta.thinking:
            return [{"reasoning_content": delta.thinking}]
        if delta.partial_json:
            call = {"index": self._calls.get(event.index, 0), "function": {"arguments": delta.partial_json}}
            return [{"tool_calls": [call]}]
        return []

    def _chunk(self, delta: Json, reason: str | None = None) -> Json:
        return {**self._head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}]}


def is_system(message: Json) -> bool:
    return message.get("role") in ("system", "developer")


def convert_messages(messages: list[Json]) -> list[Json]:
    """Consecutive tool results become one user message."""
    converted: list[Json] = []
    for message in messages:
        if is_system(message):
            continue
        role, content = "user", convert_content(message.get("content"))
        if message["role"] == "assistant":
            role, content = "assistant", content + [convert_call(call) for call in message.get("tool_calls") or ()]
        elif message["role"] == "tool":
            content = [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}]
        if converted and converted[-1]["role"] == role == "user":
            converted[-1]["content"] += content
        else:
            converted.append({"role": role, "content": content})
    return converted


def convert_content(content: Any) -> list[Json]:
    if content is None or isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [convert_image(part) if part.get("type") == "image_url" else part for part in content]


def convert_image(part: Json) -> Json:
    return convert_data_url("image", str(part["image_url"]["url"]))


def convert_data_url(block_type: str, url: str) -> Json:
    """An image or document block with what a URL holds or names."""
    if not url.startswith("data:"):
        return {"type": block_type, "source": {"type": "url", "url": url}}
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return {"type": block_type, "source": {"type": "base64", "media_type": kind, "data": data}}


def convert_call(call: Json) -> Json:
    function = call["function"]
    return {
        "type": "tool_use",
        "id": call["id"],
        "name": function["name"],
        "input": parse_input(function.get("arguments") or ""),
    }


def join_texts(message: Json, kind: str) -> str | None:
    texts = [block.get(kind) or "" for block in message["content"] if block["type"] == kind]
    return "".join(texts) if texts else None


def build_function(name: str, input: Any) -> Json:
    return {"name": name, "arguments": input if isinstance(input, str) else msgspec.json.encode(input).decode()}


def finish_reason(stop_reason: str | None) -> str | None:
    return None if stop_reason is None else STOP_REASONS.get(stop_reason, "stop")


def chat_usage(usage: Json) -> Json:
    read = usage.get("cache_read_input_tokens") or 0
    prompt = (usage.get("input_tokens") or 0) + read + (usage.get("cache_creation_input_tokens") or 0)
    output = usage.get("output_tokens") or 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": read},
    }


class ResponsesApi(OpenAiApi):
    body, item = _ResponsesBody, "input item"

    def convert(self, body: _ResponsesBody) -> ModelRequest:
        items = [{"role": "user", "content": body.input}] if isinstance(body.input, str) else body.input
        system = [{"type": "text", "text": body.instructions}] if body.instructions else []
        return ModelRequest(
            model=body.model,
            system=[*system, *(block for item in items if is_system(item) for block in convert_parts(item))],
            messages=convert_items(items),
            tools=[tool for tool in body.tools if tool.get("type") == "function"],
            max_tokens=body.max_output_tokens or 0,
        )

    async def encode_events(
        self, events: AsyncIterator[ModelEvent], request: ApiRequest
    ) -> AsyncGenerator[bytes, None]:
        encoder = ResponseEncoder()
        async for event in events:
            # The events of one event of ours are one chunk, so that faults count alike on all APIs.
            encoded = [
                b"event: %b\ndata: %b\n\n" % (each["type"].encode(), msgspec.json.encode(each))
                for each in encoder.encode(event)
            ]
            if event.type == "ping":
                yield b": ping\n\n"
            elif encoded:
                yield b"".join(encoded)

    def encode_message(self, message: Json) -> Json:
        output = [
            item
            for at, block in enumerate(message["content"])
            if (item := output_item(block, f"item_{at}_{message['id']}")) is not None
        ]
        return response_json(message, output, message["stop_reason"], message["usage"])


class ResponseEncoder:
    """Encodes one answer, event by event."""

    def __init__(self) -> None:
        self._message: Json = {}
        self._usage: Json = {}
        self._stop_reason: str | None = None
        self._open: dict[int, Json] = {}
        """The open blocks, by index, with `item_id` and, for a call, `arguments`."""
        self._output: list[Json] = []
        self._number = 0

    def encode(self, event: ModelEvent) -> list[Json]:
        """The events of the API for an event."""
        return [self._numbered(each) for each in self._encode(event)]

    def _numbered(self, event: Json) -> Json:
        self._number += 1
        return {**event, "sequence_number": self._number - 1}

    def _encode(self, event: ModelEvent) -> list[Json]:
        match event.type:
            case "message_start" if event.message is not None:
                self._message, self._usage = event.message, event.message.get("usage") or {}
                response = response_json(self._message, [], None, None)
                return [{"type": f"response.{state}", "response": response} for state in ("created", "in_progress")]
            case "content_block_start" if event.content_block is not None:
                return self._start(event.index, event.content_block)
            case "content_block_delta" if event.delta is not None:
                return self._grow(event)
            case "content_block_stop":
                return self._stop(event.index)
            case "message_delta" if event.delta is not None:
                self._usage, self._stop_reason = {**self._usage, **(event.usage or {})}, event.delta.stop_reason
            case "message_stop":
                response = response_json(self._message, self._output, self._stop_reason, self._usage)
                return [{"type": f"response.{response['status']}", "response": response}]
        return []

    def _start(self, index: int, block: Json) -> list[Json]:
        item = output_item(block, f"item_{index}_{self._message.get('id')}")
        if item is None:
            return []
        self._open[index] = block = {**block, "item_id": item["id"]}
        added = {**item, **EMPTY[item["type"]], "status": "in_progress"}
        events: list[Json] = [{"type": "response.output_item.added", "output_index": index, "item": added}]
        place = {"item_id": item["id"], "output_index": index}
        if item["type"] == "message":
            part = {"type": "output_text", "text": "", "annotations": []}
            events.append({"type": "response.content_part.added", **place, "content_index": 0, "part": part})
        elif block["type"] == "thinking":
            part = {"type": "summary_text", "text": ""}
            events.append({"type": "response.reasoning_summary_part.added", **place, "summary_index": 0, "part": part})
        return events

    def _grow(self, event: ModelEvent) -> list[Json]:
        delta, block = event.delta, self._open.get(event.index, {})
        assert delta is not None
        place = {"item_id": block.get("item_id", ""), "output_index": event.index}
        if delta.text:
            block["text"] = block.get("text", "") + delta.text
            text = {"content_index": 0, "delta": delta.text, "logprobs": []}
            return [{"type": "response.output_text.delta", **place, **text}]
        if delta.thinking:
            block["thinking"] = block.get("thinking", "") + delta.thinking
            return [{"type": "response.reasoning_summary_text.delta", **place, "summary_index": 0,
                     "delta": delta.thinking}]  # fmt: skip
        if delta.partial_json:
            block["arguments"] = block.get("arguments", "") + delta.partial_json
            return [{"type": "response.function_call_arguments.delta", **place, "delta": delta.partial_json}]
        if delta.signature:
            block["signature"] = delta.signature
        return []

    def _stop(self, index: int) -> list[Json]:
        block = self._open.pop(index, None)
        if block is None:
            return []
        if block["type"] == "tool_use":
            block["input"] = block.get("arguments", "")
        item = output_item(block, block["item_id"])
        assert item is not None
        self._output.append(item)
        done = {"type": "response.output_item.done", "output_index": index, "item": item}
        return [*done_events(item, {"item_id": item["id"], "output_index": index}), done]


def done_events(item: Json, place: Json) -> list[Json]:
    """The events that repeat the content of an item before it is done."""
    if item["type"] == "function_call":
        done = {"name": item["name"], "arguments": item["arguments"]}
        return [{"type": "response.function_call_arguments.done", **place, **done}]
    is_message = item["type"] == "message"
    parts: list[Json] = item["content"] if is_message else item["summary"]
    text, whole = (
        ("output_text", "content_part") if is_message else ("reasoning_summary_text", "reasoning_summary_part")
    )
    at: Json = {**place, **({"content_index": 0} if is_message else {"summary_index": 0})}
    more: Json = {"logprobs": []} if is_message else {}
    found: list[Json] = []
    for part in parts:
        found.append({"type": f"response.{text}.done", **at, "text": part["text"], **more})
        found.append({"type": f"response.{whole}.done", **at, "part": part})
    return found


def output_item(block: Json, id: str) -> Json | None:
    """The output item of a block; None for blocks that the API has no item for."""
    match block["type"]:
        case "text":
            part: Json = {"type": "output_text", "text": block.get("text") or "", "annotations": [], "logprobs": []}
            return {"type": "message", "id": id, "role": "assistant", "status": "completed", "content": [part]}
        case "tool_use":
            input = block.get("input")
            arguments = input if isinstance(input, str) else msgspec.json.encode(input or {}).decode()
            call = {"call_id": block["id"], "name": block["name"], "arguments": arguments}
            return {"type": "function_call", "id": id, **call, "status": "completed"}
        case "thinking":
            summary = [{"type": "summary_text", "text": block.get("thinking") or ""}]
            return {"type": "reasoning", "id": id, "summary": summary, "encrypted_content": block.get("signature")}
        case "redacted_thinking":
            return {"type": "reasoning", "id": id, "summary": [], "encrypted_content": block.get("data")}
    return None


def response_json(message: Json, output: list[Json], stop_reason: str | None, usage: Json | None) -> Json:
    """A response; in progress without usage."""
    reason = INCOMPLETE.get(stop_reason or "")
    ended = "completed" if reason is None else "incomplete"
    return {
        "id": f"resp_{message.get('id')}",
        "object": "response",
        "created_at": 0,
        "status": "in_progress" if usage is None else ended,
        "error": None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "instructions": None,
        "metadata": {},
        "model": message.get("model"),
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": None if usage is None else response_usage(usage),
    }


def convert_items(items: list[Json]) -> list[Json]:
    """Consecutive items of one role become one message."""
    converted: list[Json] = []
    for item in items:
        if is_system(item):
            continue
        role, content = convert_item(item)
        if converted and converted[-1]["role"] == role:
            converted[-1]["content"] += content
        elif content:
            converted.append({"role": role, "content": content})
    return converted


def convert_item(item: Json) -> tuple[str, list[Json]]:
    match item.get("type") or "message":
        case "message":
            return item["role"], convert_parts(item)
        case "function_call":
            call = {"id": item["call_id"], "name": item["name"], "input": parse_input(item.get("arguments") or "")}
            return "assistant", [{"type": "tool_use", **call}]
        case "function_call_output":
            output = convert_parts({"content": item["output"]})
            return "user", [{"type": "tool_result", "tool_use_id": item["call_id"], "content": output}]
        case "reasoning":
            text = "\n\n".join(part["text"] for part in item.get("summary") or item.get("content") or ())
            return "assistant", [
                {"type": "thinking", "thinking": text, "signature": item.get("encrypted_content") or ""}
            ]
        case kind:
            raise request_error(400, f"unsupported input item {kind!r}")


def convert_parts(item: Json) -> list[Json]:
    content: Any = item.get("content")
    if content is None or isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [convert_part(part) for part in content]


def convert_part(part: Json) -> Json:
    match part["type"]:
        case "input_text" | "output_text":
            return {"type": "text", "text": part["text"]}
        case "refusal":
            return {"type": "text", "text": part["refusal"]}
        case "input_image":
            return convert_data_url("image", str(part["image_url"]))
        case "input_file":
            return convert_data_url("document", str(part.get("file_data") or part.get("file_url")))
        case kind:
            raise request_error(400, f"unsupported content part {kind!r}")


def response_usage(usage: Json) -> Json:
    read, written = usage.get("cache_read_input_tokens") or 0, usage.get("cache_creation_input_tokens") or 0
    total = (usage.get("input_tokens") or 0) + read + written
    output = usage.get("output_tokens") or 0
    thought = (usage.get("output_tokens_details") or {}).get("thinking_tokens") or 0
    return {
        "input_tokens": total,
        "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": total + output,
    }
