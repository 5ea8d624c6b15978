"""OpenAI's chat completions API, server side.

Requests are converted to the Messages API, answers from it. `models/backends/openai.py` is the client side. The two
share no code, so each tests the other.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import msgspec

from parley.errors import ModelError
from parley.models.accumulator import parse_input
from parley.models.base import ModelEvent, ModelRequest
from parley.protocol.base import Json, Struct
from parley.testing.http import request_error
from parley.testing.messages_api import ApiRequest

STOP_REASONS = {"max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}
"""Others become `stop`."""
DONE = b"data: [DONE]\n\n"


class _StreamOptions(Struct, frozen=True):
    include_usage: bool = False


class _ChatBody(Struct, frozen=True, kw_only=True):
    model: str
    messages: list[Json]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    tools: list[Json] = []


class ChatCompletionsApi:
    def read(self, raw: bytes) -> ApiRequest:
        try:
            body = msgspec.json.decode(raw, type=_ChatBody)
            system = [block for one in body.messages if is_system(one) for block in convert_content(one.get("content"))]
            request = ModelRequest(
                model=body.model,
                system=system,
                messages=convert_messages(body.messages),
                tools=[tool.get("function") or tool for tool in body.tools],
                max_tokens=body.max_completion_tokens or body.max_tokens or 0,
            )
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise request_error(400, str(exc)) from None
        except (KeyError, TypeError, AttributeError) as exc:
            raise request_error(400, f"invalid message: {exc!r}") from None
        return ApiRequest(
            request, bool(body.stream), body.stream_options is not None and body.stream_options.include_usage
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
        return {**head, "choices": [choice], "usage": convert_usage(message["usage"])}

    def error(self, exc: ModelError) -> Json:
        return {"error": {"message": exc.message, "type": exc.kind or "api_error", "param": None, "code": None}}


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
                return [{**self._head, "choices": [], "usage": convert_usage(self._usage)}]
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


def convert_usage(usage: Json) -> Json:
    read = usage.get("cache_read_input_tokens") or 0
    prompt = (usage.get("input_tokens") or 0) + read + (usage.get("cache_creation_input_tokens") or 0)
    output = usage.get("output_tokens") or 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": read},
    }
