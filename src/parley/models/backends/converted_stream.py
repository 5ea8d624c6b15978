"""The Messages API events of an answer that another API streams. Pure.

    stream = ChatStream(model="gpt-5", new_id=new_id, taken=ids, input_chars=1200)
    for event in stream.read(batch): ...        # raises ModelError
    for event in stream.end(): ...              # raises ModelError if the answer is incomplete and that is an error

A subclass converts the events of one API (`ChatStream`, `ResponsesStream`). Usage that the server does not report is
estimated and marked `parley_estimated`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import msgspec

from parley.errors import ModelError
from parley.models.backends.base import AnswerStream
from parley.models.base import Delta, ModelEvent, read_event
from parley.models.catalog import CHARS_PER_TOKEN
from parley.protocol.base import Json, replace_lone_surrogates

DONE = b"[DONE]"
"""The last data of a chat completions stream. Some servers with the Responses API send it, too."""
ESTIMATED = "parley_estimated"
"""A field of the usage: whether it is an estimate, because the server reported none."""


class ConvertedStream(AnswerStream):
    def __init__(self, *, model: str, new_id: Callable[[], str], taken: Collection[str], input_chars: int) -> None:
        super().__init__()
        self.model = model
        self.new_id = new_id
        self._taken = set(taken)
        """Ids of earlier tool calls in the conversation."""
        self._usage = make_usage(input_chars // CHARS_PER_TOKEN, 0)
        self.reported_usage: Json | None = None
        self.has_started = False
        self.is_refused = False
        self.next_block = 0
        self._open_text: tuple[str, int] | None = None
        """The kind and index of the block that `add_text` extends."""
        self._output_chars = 0

    def read(self, batch: list[bytes]) -> Iterator[ModelEvent]:
        for data in batch:
            yield from self.feed(data)

    def feed(self, data: bytes) -> list[ModelEvent]:
        """The events for one event of the server. Raises ModelError for an error or an invalid event."""
        try:
            return list(self.convert(parse_object(data)))
        except (AttributeError, TypeError, KeyError) as exc:
            raise ModelError(f"the model sent an invalid event: {exc}", retryable=True) from None

    def convert(self, event: Json) -> Iterator[ModelEvent]:
        raise NotImplementedError

    def start(self, model: object) -> Iterator[ModelEvent]:
        """The start of the message, unless it was sent."""
        if self.has_started:
            return
        self.has_started = True
        message: Json = {
            "id": f"msg_{self.new_id()}",
            "type": "message",
            "role": "assistant",
            "model": str(model or self.model),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage,
        }
        yield make_event({"type": "message_start", "message": message})

    def claim_call_id(self, id: str) -> str:
        """The id of a tool call: the server's, if no call of the conversation has it."""
        unique = id if id and id not in self._taken else f"call_{self.new_id()}"
        self._taken.add(unique)
        return unique

    def add_text(self, kind: str, text: str) -> Iterator[ModelEvent]:
        """Add to a block of `text` or `thinking`; the open one if it is of this kind, else a new one."""
        if self._open_text is None or self._open_text[0] != kind:
            yield from self.close_text()
            self._open_text = kind, self.next_block
            empty = {"type": kind, kind: "", **({"signature": ""} if kind == "thinking" else {})}
            yield start_block(self.next_block, empty)
            self.next_block += 1
        yield self.add_delta(self._open_text[1], f"{kind}_delta", kind, text)

    def close_text(self) -> Iterator[ModelEvent]:
        if self._open_text is not None:
            yield stop_block(self._open_text[1])
            self._open_text = None

    def add_delta(self, block: int, kind: str, field: str, text: str) -> ModelEvent:
        """An answer has thousands of them, so the event is not read from its JSON again."""
        self._output_chars += len(text)
        return delta_event(block, {"type": kind, field: text})

    def end_message(self, stop_reason: str) -> Iterator[ModelEvent]:
        usage = self.reported_usage or make_usage(self._usage["input_tokens"], self._output_chars // CHARS_PER_TOKEN)
        end = {"stop_reason": "refusal" if self.is_refused else stop_reason, "stop_sequence": None}
        yield make_event({"type": "message_delta", "delta": end, "usage": usage})
        yield make_event({"type": "message_stop"})


def parse_object(data: bytes) -> Json:
    """The JSON object of an event. Raises ModelError."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        if (repaired := replace_lone_surrogates(data)) is not None:
            return parse_object(repaired)
        raise ModelError(f"the model sent an invalid event: {exc}", retryable=True) from None
    except RecursionError:
        raise ModelError("the model sent an event that is nested too deeply", retryable=True) from None
    if not isinstance(value, dict):
        raise ModelError("the model sent an event that is not a JSON object", retryable=True)
    return value


def make_event(event: Json) -> ModelEvent:
    return read_event(msgspec.json.encode(event))


def delta_event(block: int, delta: Json) -> ModelEvent:
    raw = msgspec.json.encode({"type": "content_block_delta", "index": block, "delta": delta})
    return ModelEvent("content_block_delta", block, delta=Delta(**delta), raw=raw)


def start_block(index: int, block: Json) -> ModelEvent:
    return make_event({"type": "content_block_start", "index": index, "content_block": block})


def stop_block(index: int) -> ModelEvent:
    return make_event({"type": "content_block_stop", "index": index})


def make_usage(
    input_tokens: int, output_tokens: int, *, read: int = 0, written: int = 0, thinking: int | None = None
) -> Json:
    """The usage in the terms of the Messages API; an estimate if the tokens for thinking are not reported either."""
    return {
        "input_tokens": max(0, input_tokens),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": output_tokens,
        **({} if thinking is None else {"output_tokens_details": {"thinking_tokens": thinking}}),
        ESTIMATED: thinking is None,
    }
