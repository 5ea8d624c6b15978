"""Convert a chat completions stream to Messages API events. Pure.

    stream = ChatStream(model="gpt-5", new_id=new_id, taken=ids, input_chars=1200)
    for data in batch:
        for event in stream.feed(data): ...     # raises ModelError
    for event in stream.end(): ...

Servers differ in what they omit. Missing usage is estimated and marked `parley_estimated`. A missing finish reason is
replaced by the end of the stream. Tool calls without an index, id or name, with one index for all calls, or with all
arguments in one piece are converted correctly. A stream that ends without any sign of completion gets no
`message_stop`, like one that was cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import msgspec

from parley.errors import ModelError
from parley.models.base import Delta, ModelEvent, read_event
from parley.models.catalog import CHARS_PER_TOKEN
from parley.protocol.base import Json, Struct, replace_lone_surrogates

DONE = b"[DONE]"
STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
REASONING = ("reasoning_content", "reasoning")
ESTIMATED = "parley_estimated"
"""A field of the usage: whether it is an estimate, because the server reported none."""


class PartialCall(Struct):
    """A tool call that is still streaming."""

    index: int
    """The index of its block."""
    id: str
    name: str = ""
    arguments: str = ""
    is_open: bool = False
    is_closed: bool = False


class ChatStream:
    def __init__(self, *, model: str, new_id: Callable[[], str], taken: Collection[str], input_chars: int) -> None:
        self._model = model
        self._new_id = new_id
        self._taken = set(taken)
        """Ids of earlier tool calls in the conversation."""
        self._usage = estimate(input_chars, 0)
        self._reported_usage: Json | None = None
        self._started = False
        self._choice: Any = None
        self._finish: str | None = None
        self._refused = False
        self.is_done = False
        """Whether the server sent `[DONE]`."""
        self._blocks = 0
        self._open: tuple[str, int] | None = None
        """The kind and index of the open text or thinking block."""
        self._calls: list[PartialCall] = []
        self._by_key: dict[Any, PartialCall] = {}
        self._output_chars = 0

    def feed(self, data: bytes) -> list[ModelEvent]:
        """The events of one chunk. Raises ModelError for an error or an invalid chunk."""
        if data == DONE:
            self.is_done = True
            return []
        try:
            return list(self._take(parse_chunk(data)))
        except (AttributeError, TypeError, KeyError) as exc:
            raise ModelError(f"the model sent an invalid event: {exc}", retryable=True) from None

    def _take(self, chunk: Json) -> Iterator[ModelEvent]:
        if not self._started:
            self._started = True
            yield message_start(self._new_id(), str(chunk.get("model") or self._model), self._usage)
        usage = chunk.get("usage") or (chunk.get("x_groq") or {}).get("usage") or {}
        if usage.get("completion_tokens") is not None:
            self._reported_usage = convert_usage(usage)
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
        return self._started and (self.is_done or self._finish is not None)

    @property
    def can_end_early(self) -> bool:
        """The same after a broken connection. Some servers send the finish reason before the rest of a call."""
        return self.is_complete and (self.is_done or all(is_complete(call.arguments) for call in self._calls))

    def end(self) -> Iterator[ModelEvent]:
        """The events after the last chunk."""
        if not self.is_complete:
            return
        yield from self._close_text()
        for call in self._calls:
            yield from self._close_call(call)
        usage = self._reported_usage or estimate(self._usage["input_tokens"] * CHARS_PER_TOKEN, self._output_chars)
        reason = "refusal" if self._refused else STOP_REASONS.get(self._finish or "stop", "end_turn")
        if self._calls and reason == "end_turn":
            reason = "tool_use"
        yield make_event(
            {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
        )
        yield make_event({"type": "message_stop"})

    def _grow(self, delta: Json) -> Iterator[ModelEvent]:
        for key in REASONING:
            if isinstance(delta.get(key), str) and delta[key]:
                yield from self._append_text("thinking", delta[key])
                break
        for kind, text in text_of_content(delta.get("content")):
            yield from self._append_text(kind, text)
        if isinstance(delta.get("refusal"), str) and delta["refusal"]:
            yield from self._append_text("text", delta["refusal"])
            self._refused = True
        calls = delta.get("tool_calls") or (
            [{"function": delta["function_call"]}] if delta.get("function_call") else []
        )
        for piece in calls:
            yield from self._call(piece)

    def _append_text(self, kind: str, text: str) -> Iterator[ModelEvent]:
        """Add text or thinking."""
        if self._open is None or self._open[0] != kind:
            yield from self._close_text()
            self._open = kind, self._blocks
            empty = {"type": kind, kind: "", **({"signature": ""} if kind == "thinking" else {})}
            yield make_event({"type": "content_block_start", "index": self._blocks, "content_block": empty})
            self._blocks += 1
        self._output_chars += len(text)
        yield delta_event(self._open[1], {"type": f"{kind}_delta", kind: text})

    def _close_text(self) -> Iterator[ModelEvent]:
        if self._open is not None:
            yield make_event({"type": "content_block_stop", "index": self._open[1]})
            self._open = None

    def _call(self, piece: Json) -> Iterator[ModelEvent]:
        """Add a piece of a tool call."""
        yield from self._close_text()
        function = piece.get("function") or {}
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
            self._output_chars += len(arguments)
            yield delta_event(call.index, {"type": "input_json_delta", "partial_json": arguments})

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
        call = PartialCall(index=self._blocks, id=id if id and id not in self._taken else f"call_{self._new_id()}")
        self._taken.add(call.id)
        self._blocks += 1
        self._calls.append(call)
        for key in (piece.get("index"), id or None):
            if key is not None:
                self._by_key[key] = call
        return call

    def _open_call(self, call: PartialCall) -> Iterator[ModelEvent]:
        if not call.is_open:
            call.is_open = True
            block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
            yield make_event({"type": "content_block_start", "index": call.index, "content_block": block})

    def _close_call(self, call: PartialCall) -> Iterator[ModelEvent]:
        if not call.is_closed:
            yield from self._open_call(call)
            call.is_closed = True
            yield make_event({"type": "content_block_stop", "index": call.index})


def is_new_call(call: PartialCall, function: Json) -> bool:
    """Whether a piece with a function name starts a new call. Some servers repeat the name."""
    return bool(call.name and function.get("name") and function.get("arguments") and is_complete(call.arguments))


def read_stop_reason(choice: Json) -> str | None:
    """The finish reason, if any. Raises ModelError if the answer failed."""
    reason = choice.get("finish_reason")
    if reason == "error":
        raise ModelError("the model's server failed during its answer without giving a reason", retryable=True)
    return reason if isinstance(reason, str) and reason else None


def parse_object(data: bytes) -> Json:
    """The JSON object of an event. Raises ModelError."""
    try:
        chunk = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        if (repaired := replace_lone_surrogates(data)) is not None:
            return parse_object(repaired)
        raise ModelError(f"the model sent an invalid event: {exc}", retryable=True) from None
    except RecursionError:
        raise ModelError("the model sent an event that is nested too deeply", retryable=True) from None
    if not isinstance(chunk, dict):
        raise ModelError("the model sent an event that is not a JSON object", retryable=True)
    return chunk


def parse_chunk(data: bytes) -> Json:
    """A chunk of the answer. Raises ModelError."""
    chunk = parse_object(data)
    error = chunk.get("error")
    if error:
        details = error if isinstance(error, dict) else {"message": str(error)}
        text = str(details.get("message") or "the model's stream ended early")
        raise ModelError(text, kind=str(details.get("type") or "api_error"), retryable=True)
    return chunk


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


def message_start(id: str, model: str, usage: Json) -> ModelEvent:
    message: Json = {
        "id": f"msg_{id}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    return make_event({"type": "message_start", "message": message})


def delta_event(index: int, delta: Json) -> ModelEvent:
    """An answer has thousands of them, so it is not read from its JSON again."""
    raw = msgspec.json.encode({"type": "content_block_delta", "index": index, "delta": delta})
    return ModelEvent("content_block_delta", index, delta=Delta(**delta), raw=raw)


def make_event(event: Json) -> ModelEvent:
    return read_event(msgspec.json.encode(event))


def convert_usage(usage: Json) -> Json:
    """The usage in the terms of the Messages API."""
    read = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0
    thought = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
    return {
        "input_tokens": max(0, (usage.get("prompt_tokens") or 0) - read),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": read,
        "output_tokens": usage.get("completion_tokens") or 0,
        "output_tokens_details": {"thinking_tokens": thought},
        ESTIMATED: False,
    }


def estimate(input_chars: int, output_chars: int) -> Json:
    return {
        "input_tokens": input_chars // CHARS_PER_TOKEN,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output_chars // CHARS_PER_TOKEN,
        ESTIMATED: True,
    }
