"""OpenAI's chat completions as a server speaks them.

Requests are read into the words of the Messages API, and answers are spelled out of them. The same from a client's side
is models/backends/openai.py: the two meet only on the wire, so that each checks the other.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import msgspec

from parley.errors import ModelError
from parley.models.accumulator import parse_input
from parley.models.base import Event, ModelRequest
from parley.protocol.base import Json, Struct
from parley.testing.http import refused
from parley.testing.messages_api import Asked

STOP_REASONS = {"max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}
"""Any other is `stop`."""
DONE = b"data: [DONE]\n\n"


class _StreamOptions(Struct, frozen=True):
    include_usage: bool = False


class _Body(Struct, frozen=True, kw_only=True):
    model: str
    messages: list[Json]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    tools: list[Json] = []


class Chat:
    def read(self, raw: bytes) -> Asked:
        try:
            body = msgspec.json.decode(raw, type=_Body)
            system = [block for said in body.messages if is_system(said) for block in blocks(said.get("content"))]
            request = ModelRequest(
                model=body.model,
                system=system,
                messages=conversation(body.messages),
                tools=[tool.get("function") or tool for tool in body.tools],
                max_tokens=body.max_completion_tokens or body.max_tokens or 0,
            )
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as flaw:
            raise refused(400, str(flaw)) from None
        except (KeyError, TypeError, AttributeError) as flaw:
            raise refused(400, f"a message cannot be read: {flaw!r}") from None
        return Asked(request, bool(body.stream), body.stream_options is not None and body.stream_options.include_usage)

    async def spelled(self, events: AsyncIterator[Event], asked: Asked) -> AsyncGenerator[bytes, None]:
        telling = Telling(asked.with_usage)
        async for event in events:
            for chunk in telling.take(event):
                yield b"data: %b\n\n" % msgspec.json.encode(chunk)
            if event.type == "ping":
                yield b": ping\n\n"
            elif event.type == "message_stop":
                yield DONE

    def whole(self, message: Json) -> Json:
        said: Json = {"role": "assistant", "content": joined(message, "text"), "refusal": None}
        if thought := joined(message, "thinking"):
            said["reasoning_content"] = thought
        calls = [block for block in message["content"] if block["type"] == "tool_use"]
        if calls:
            said["tool_calls"] = [
                {"id": call["id"], "type": "function", "function": function(call["name"], call["input"])}
                for call in calls
            ]
        choice = {"index": 0, "message": said, "finish_reason": finish_reason(message["stop_reason"]), "logprobs": None}
        head = {"id": message["id"], "object": "chat.completion", "created": 0, "model": message["model"]}
        return {**head, "choices": [choice], "usage": used(message["usage"])}

    def error(self, flaw: ModelError) -> Json:
        return {"error": {"message": flaw.message, "type": flaw.kind or "api_error", "param": None, "code": None}}


class Telling:
    """One answer, event by event."""

    def __init__(self, with_usage: bool) -> None:
        self._with_usage = with_usage
        self._head: Json = {}
        self._usage: Json = {}
        self._calls: dict[int, int] = {}
        """Which tool call a block is."""

    def take(self, event: Event) -> list[Json]:
        """The chunks that tell an event."""
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
                begun = {"index": number, "id": block["id"], "type": "function"}
                return [self._chunk({"tool_calls": [{**begun, "function": {"name": block["name"], "arguments": ""}}]})]
            case "content_block_delta" if event.delta is not None:
                return [self._chunk(delta) for delta in self._grown(event)]
            case "message_delta" if event.delta is not None:
                self._usage = {**self._usage, **(event.usage or {})}
                return [self._chunk({}, finish_reason(event.delta.stop_reason))]
            case "message_stop" if self._with_usage:
                return [{**self._head, "choices": [], "usage": used(self._usage)}]
        return []

    def _grown(self, event: Event) -> list[Json]:
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


# Requests.


def is_system(message: Json) -> bool:
    return message.get("role") in ("system", "developer")


def conversation(messages: list[Json]) -> list[Json]:
    """Results of calls that follow each other are one message of the user."""
    told: list[Json] = []
    for message in messages:
        if is_system(message):
            continue
        role, content = "user", blocks(message.get("content"))
        if message["role"] == "assistant":
            role, content = "assistant", content + [tool_use(call) for call in message.get("tool_calls") or ()]
        elif message["role"] == "tool":
            content = [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}]
        if told and told[-1]["role"] == role == "user":
            told[-1]["content"] += content
        else:
            told.append({"role": role, "content": content})
    return told


def blocks(content: Any) -> list[Json]:
    if content is None or isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [picture(part) if part.get("type") == "image_url" else part for part in content]


def picture(part: Json) -> Json:
    url = str(part["image_url"]["url"])
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def tool_use(call: Json) -> Json:
    asked = call["function"]
    return {
        "type": "tool_use",
        "id": call["id"],
        "name": asked["name"],
        "input": parse_input(asked.get("arguments") or ""),
    }


# Answers.


def joined(message: Json, kind: str) -> str | None:
    texts = [block.get(kind) or "" for block in message["content"] if block["type"] == kind]
    return "".join(texts) if texts else None


def function(name: str, input: Any) -> Json:
    return {"name": name, "arguments": input if isinstance(input, str) else msgspec.json.encode(input).decode()}


def finish_reason(stop_reason: str | None) -> str | None:
    return None if stop_reason is None else STOP_REASONS.get(stop_reason, "stop")


def used(usage: Json) -> Json:
    read = usage.get("cache_read_input_tokens") or 0
    prompt = (usage.get("input_tokens") or 0) + read + (usage.get("cache_creation_input_tokens") or 0)
    said = usage.get("output_tokens") or 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": said,
        "total_tokens": prompt + said,
        "prompt_tokens_details": {"cached_tokens": read},
    }
