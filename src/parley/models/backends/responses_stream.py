"""Convert a stream of the Responses API to Messages API events. Pure.

    stream = ResponsesStream(model="gpt-5", new_id=new_id, taken=ids, input_chars=1200)
    for data in batch:
        for event in stream.feed(data): ...     # raises ModelError
    for event in stream.end(): ...              # raises ModelError if the response is incomplete

Each output item becomes one block. Servers differ in what they omit: an item without deltas is read from its `done`
event, a response without items from its `completed` event, and a response in one piece is read as such. An error names
the item in which the stream broke off.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator

from parley.errors import ModelError
from parley.models.accumulator import order_error
from parley.models.backends.chat_stream import (
    ESTIMATED,
    delta_event,
    estimate,
    make_event,
    message_start,
    parse_object,
)
from parley.models.backends.reasoning_items import PHASE, pack
from parley.models.base import ModelEvent
from parley.models.catalog import CHARS_PER_TOKEN
from parley.protocol.base import Json, Struct

STOP_REASONS = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}
"""By the reason of an incomplete response."""
DONE = b"[DONE]"
"""Not part of the API, but some servers send it."""
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


class ResponsesStream:
    def __init__(self, *, model: str, new_id: Callable[[], str], taken: Collection[str], input_chars: int) -> None:
        self._model = model
        self._new_id = new_id
        self._taken = set(taken)
        """Ids of earlier tool calls in the conversation."""
        self._usage = estimate(input_chars, 0)
        self._reported_usage: Json | None = None
        self.has_started = False
        self.is_done = False
        """Whether the server sent the end of the response."""
        self._incomplete: str | None = None
        self._refused = False
        self._items: list[PartialItem] = []
        self._blocks = 0
        self._output_chars = 0

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
        """The events of one event of the server. Raises ModelError for an error or an invalid event."""
        if data == DONE or self.is_done:
            return []
        try:
            return list(self._take(parse_object(data)))
        except (AttributeError, TypeError, KeyError) as exc:
            raise ModelError(f"the model sent an invalid event: {exc}", retryable=True) from None

    def end(self) -> Iterator[ModelEvent]:
        """The events after the last one of the server. Raises ModelError if the response is incomplete."""
        if not self.is_done:
            where = self.place if self.has_started else "before it began"
            raise ModelError(f"the model's stream broke off {where}", kind="connection_failed", retryable=True)
        for item in self._items:
            yield from self._close(item)
        usage = self._reported_usage or estimate(self._usage["input_tokens"] * CHARS_PER_TOKEN, self._output_chars)
        end = {"stop_reason": self._stop_reason(), "stop_sequence": None}
        yield make_event({"type": "message_delta", "delta": end, "usage": usage})
        yield make_event({"type": "message_stop"})

    def _stop_reason(self) -> str:
        if self._refused:
            return "refusal"
        if self._incomplete in STOP_REASONS:
            return STOP_REASONS[self._incomplete]
        return "tool_use" if any(item.kind == "function_call" for item in self._items) else "end_turn"

    def _take(self, event: Json) -> Iterator[ModelEvent]:
        kind = event.get("type")
        if kind == "error" or (event.get("error") and event.get("object") != "response"):
            raise response_error(event.get("error") or event)
        if kind is None and ("output" in event or event.get("object") == "response"):
            # A server that does not stream sends the response itself.
            yield from self._start(event)
            yield from self._finish(event)
        elif (handler := HANDLERS.get(str(kind))) is not None:
            yield from self._start(event.get("response") or {})
            yield from handler(self, event)

    def _start(self, response: Json) -> Iterator[ModelEvent]:
        if not self.has_started:
            self.has_started = True
            yield message_start(self._new_id(), str(response.get("model") or self._model), self._usage)

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
            call_id = str(item.get("call_id") or "")
            if not call_id or call_id in self._taken:
                call_id = f"call_{self._new_id()}"
            self._taken.add(call_id)
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
        self._refused = self._refused or any(part.get("type") == "refusal" for part in parts)
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
        signature = pack(self._model, item)
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
        item.block = self._blocks
        self._blocks += 1
        return make_event({"type": "content_block_start", "index": item.block, "content_block": block})

    def _close(self, item: PartialItem) -> Iterator[ModelEvent]:
        if not item.is_closed:
            item.is_closed = True
            if item.block is not None:
                yield make_event({"type": "content_block_stop", "index": item.block})

    # Deltas.

    def _text(self, event: Json) -> Iterator[ModelEvent]:
        item = yield from self._find_or_add(event, "message")
        yield from self._append_text(item, event["delta"])

    def _refusal(self, event: Json) -> Iterator[ModelEvent]:
        self._refused = True
        yield from self._text(event)

    def _summary(self, event: Json) -> Iterator[ModelEvent]:
        yield from self._reasoning(event, ("summary", event.get("summary_index") or 0))

    def _reasoning_text(self, event: Json) -> Iterator[ModelEvent]:
        yield from self._reasoning(event, ("content", event.get("content_index") or 0))

    def _reasoning(self, event: Json, part: tuple[str, int]) -> Iterator[ModelEvent]:
        item = yield from self._find_or_add(event, "reasoning")
        yield from self._append_thinking(item, part, event["delta"])

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
        self._output_chars += len(text)
        assert item.block is not None
        yield delta_event(item.block, {"type": "text_delta", "text": text})

    def _append_thinking(self, item: PartialItem, part: tuple[str, int], text: str) -> Iterator[ModelEvent]:
        if not text:
            return
        if item.block is None:
            yield self._open(item, {"type": "thinking", "thinking": "", "signature": ""})
        elif item.part != part:
            text = f"\n\n{text}"
        item.part, item.has_text = part, True
        self._output_chars += len(text)
        assert item.block is not None
        yield delta_event(item.block, {"type": "thinking_delta", "thinking": text})

    def _append_arguments(self, item: PartialItem, text: str) -> Iterator[ModelEvent]:
        if text:
            item.arguments += text
            self._output_chars += len(text)
            assert item.block is not None
            yield delta_event(item.block, {"type": "input_json_delta", "partial_json": text})

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
            self._reported_usage = convert_usage(usage)

    def _response_done(self, event: Json) -> Iterator[ModelEvent]:
        yield from self._finish(event["response"])


HANDLERS: dict[str, Callable[[ResponsesStream, Json], Iterator[ModelEvent]]] = {
    "response.created": ResponsesStream._begin,
    "response.in_progress": ResponsesStream._begin,
    "response.output_item.added": ResponsesStream._item_added,
    "response.output_item.done": ResponsesStream._item_done,
    "response.output_text.delta": ResponsesStream._text,
    "response.refusal.delta": ResponsesStream._refusal,
    "response.reasoning_summary_text.delta": ResponsesStream._summary,
    "response.reasoning_text.delta": ResponsesStream._reasoning_text,
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
    """The usage in the terms of the Messages API."""
    details = usage.get("input_tokens_details") or {}
    read, written = details.get("cached_tokens") or 0, details.get("cache_write_tokens") or 0
    thought = (usage.get("output_tokens_details") or {}).get("reasoning_tokens") or 0
    return {
        "input_tokens": max(0, (usage.get("input_tokens") or 0) - read - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": usage.get("output_tokens") or 0,
        "output_tokens_details": {"thinking_tokens": thought},
        ESTIMATED: False,
    }
