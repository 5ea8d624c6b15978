"""The stream of the chat completions API as the events of the Messages API. Pure.

    stream = ChatStream(model="gpt-5", new_id=new_id, taken=ids, input_chars=1200)
    for data in batch:
        for event in stream.feed(data): ...     # raises ModelError
    for event in stream.end(): ...

Servers differ in what they leave out. Without a usage it is estimated and marked as such
(`parley_estimated`); without a finish reason the end of the stream counts; calls without an
index, an id or a name of their own, with one index for all, or with their arguments in one
piece, come out as if they had been sent well. A stream that ends without any sign that it
is complete gets no `message_stop`, as one that was cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import msgspec

from parley.errors import ModelError
from parley.models.backends.chat_usage import counted, estimate
from parley.models.base import Event, read_event
from parley.models.catalog import CHARS_PER_TOKEN
from parley.protocol.base import Json, Struct, mend_surrogates

DONE = b"[DONE]"
STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
REASONING = ("reasoning_content", "reasoning")


class Call(Struct):
    """A tool call while it comes in."""

    index: int
    """Its block."""
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
        """Ids that earlier calls of the conversation have."""
        self._usage = estimate(input_chars, 0)
        self._told_usage: Json | None = None
        self._started = False
        self._choice: Any = None
        self._finish: str | None = None
        self._refused = False
        self.is_done = False
        """Whether the server said that nothing more comes."""
        self._blocks = 0
        self._open: tuple[str, int] | None = None
        """The kind and number of the text or thought that grows."""
        self._calls: list[Call] = []
        self._by_key: dict[Any, Call] = {}
        self._output_chars = 0

    def feed(self, data: bytes) -> list[Event]:
        """The events of one chunk. Raises ModelError for an error or something that is no chunk."""
        if data == DONE:
            self.is_done = True
            return []
        try:
            return list(self._take(understood(data)))
        except (AttributeError, TypeError, KeyError) as flaw:
            raise ModelError(f"the model sent an event of a strange shape: {flaw}", retryable=True) from None

    def _take(self, chunk: Json) -> Iterator[Event]:
        if not self._started:
            self._started = True
            yield self._start(chunk)
        usage = chunk.get("usage") or (chunk.get("x_groq") or {}).get("usage") or {}
        if usage.get("completion_tokens") is not None:
            self._told_usage = counted(usage)
        for choice in chunk.get("choices") or []:
            if self._choice is None:
                self._choice = choice.get("index") or 0
            if (choice.get("index") or 0) != self._choice:
                continue  # another answer to the same question: one is enough
            # `message` is what servers send that do not really stream.
            delta = choice.get("delta") or choice.get("message") or {}
            yield from self._grow(delta)
            self._finish = reason_in(choice) or self._finish

    @property
    def is_complete(self) -> bool:
        """Whether there is a sign that nothing of the answer is missing."""
        return self._started and (self.is_done or self._finish is not None)

    @property
    def outlives_a_break(self) -> bool:
        """The same, where the line broke: some name the reason before the last of a call has come."""
        return self.is_complete and (self.is_done or all(is_complete(call.arguments) for call in self._calls))

    def end(self) -> Iterator[Event]:
        """The events behind the last chunk."""
        if not self.is_complete:
            return
        yield from self._close_text()
        for call in self._calls:
            yield from self._close_call(call)
        usage = self._told_usage or estimate(self._usage["input_tokens"] * CHARS_PER_TOKEN, self._output_chars)
        reason = "refusal" if self._refused else STOP_REASONS.get(self._finish or "stop", "end_turn")
        if self._calls and reason == "end_turn":
            reason = "tool_use"
        yield made({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage})
        yield made({"type": "message_stop"})

    def _start(self, chunk: Json) -> Event:
        message: Json = {
            "id": f"msg_{self._new_id()}",
            "type": "message",
            "role": "assistant",
            "model": str(chunk.get("model") or self._model),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage,
        }
        return made({"type": "message_start", "message": message})

    def _grow(self, delta: Json) -> Iterator[Event]:
        for key in REASONING:
            if isinstance(delta.get(key), str) and delta[key]:
                yield from self._say("thinking", delta[key])
                break
        for kind, text in said(delta.get("content")):
            yield from self._say(kind, text)
        if isinstance(delta.get("refusal"), str) and delta["refusal"]:
            yield from self._say("text", delta["refusal"])
            self._refused = True
        calls = delta.get("tool_calls") or (
            [{"function": delta["function_call"]}] if delta.get("function_call") else []
        )
        for piece in calls:
            yield from self._call(piece)

    def _say(self, kind: str, text: str) -> Iterator[Event]:
        """More text or more thought."""
        if self._open is None or self._open[0] != kind:
            yield from self._close_text()
            self._open = kind, self._blocks
            empty = {"type": kind, kind: "", **({"signature": ""} if kind == "thinking" else {})}
            yield made({"type": "content_block_start", "index": self._blocks, "content_block": empty})
            self._blocks += 1
        self._output_chars += len(text)
        yield delta_event(self._open[1], {"type": f"{kind}_delta", kind: text})

    def _close_text(self) -> Iterator[Event]:
        if self._open is not None:
            yield made({"type": "content_block_stop", "index": self._open[1]})
            self._open = None

    def _call(self, piece: Json) -> Iterator[Event]:
        """More of a tool call."""
        yield from self._close_text()
        function = piece.get("function") or {}
        call = self._call_of(piece, function)
        if call is None:
            call = self._new_call(piece)
            for earlier in self._calls[:-1]:
                # One call after the other, as clients expect it; one that is still incomplete stays open.
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

    def _call_of(self, piece: Json, function: Json) -> Call | None:
        """The call that a piece belongs to; None for a new one."""
        index, id = piece.get("index"), piece.get("id") or None
        if index is None and id is None:
            last = self._calls[-1] if self._calls else None
            if last is None or begins_anew(last, function):
                return None
            return None if function.get("name") and last.name and not last.arguments else last
        same_id, same_index = self._by_key.get(id), self._by_key.get(index)
        if index is None:
            return same_id
        # One index for all calls: a piece with another id, or with a name behind complete arguments, is a new call.
        if same_index is None or (id is not None and same_id is not same_index):
            return None
        return None if begins_anew(same_index, function) else same_index

    def _new_call(self, piece: Json) -> Call:
        id = piece.get("id") or ""
        call = Call(index=self._blocks, id=id if id and id not in self._taken else f"call_{self._new_id()}")
        self._taken.add(call.id)
        self._blocks += 1
        self._calls.append(call)
        for key in (piece.get("index"), id or None):
            if key is not None:
                self._by_key[key] = call
        return call

    def _open_call(self, call: Call) -> Iterator[Event]:
        if not call.is_open:
            call.is_open = True
            block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
            yield made({"type": "content_block_start", "index": call.index, "content_block": block})

    def _close_call(self, call: Call) -> Iterator[Event]:
        if not call.is_closed:
            yield from self._open_call(call)
            call.is_closed = True
            yield made({"type": "content_block_stop", "index": call.index})


def begins_anew(call: Call, function: Json) -> bool:
    """Whether a piece that names a function is another call rather than more of this one: some repeat the name."""
    return bool(call.name and function.get("name") and function.get("arguments") and is_complete(call.arguments))


def reason_in(choice: Json) -> str | None:
    """Why an answer ended, if it did. Raises ModelError for one that failed."""
    reason = choice.get("finish_reason")
    if reason == "error":
        raise ModelError("the model's server failed in the midst of its answer, and did not say why", retryable=True)
    return reason if isinstance(reason, str) and reason else None


def understood(data: bytes) -> Json:
    """Raises ModelError."""
    try:
        chunk = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as flaw:
        if (mended := mend_surrogates(data)) is not None:
            return understood(mended)
        raise ModelError(f"the model sent an event that cannot be read: {flaw}", retryable=True) from None
    except RecursionError:
        raise ModelError("the model sent an event that is nested too deep", retryable=True) from None
    if not isinstance(chunk, dict):
        raise ModelError("the model sent an event that is no object", retryable=True)
    error = chunk.get("error")
    if error:
        told = error if isinstance(error, dict) else {"message": str(error)}
        text = str(told.get("message") or "the stream broke off")
        raise ModelError(text, kind=str(told.get("type") or "api_error"), retryable=True)
    return chunk


def said(content: Any) -> Iterator[tuple[str, str]]:
    """The texts and thoughts of a delta; some servers send parts where others send a string."""
    if isinstance(content, str) and content:
        yield "text", content
    for part in content if isinstance(content, list) else []:
        if isinstance(part.get("text"), str) and part["text"]:
            yield "text", part["text"]
        thought = part.get("thinking")
        texts = [thought] if isinstance(thought, str) else [piece.get("text", "") for piece in thought or []]
        yield from (("thinking", text) for text in texts if text)


def is_complete(arguments: str) -> bool:
    """Whether the arguments of a call are all there."""
    try:
        msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def delta_event(index: int, delta: Json) -> Event:
    return made({"type": "content_block_delta", "index": index, "delta": delta})


def made(event: Json) -> Event:
    return read_event(msgspec.json.encode(event))
