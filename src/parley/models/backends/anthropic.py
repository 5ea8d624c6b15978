"""The Anthropic Messages API at any base URL. Events are passed on byte for byte."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from operator import contains
from typing import Any

import msgspec

from parley.errors import ModelError
from parley.models.backends.rate_limits import parse_quota
from parley.models.backends.reasoning_items import without_reasoning_items
from parley.models.backends.unsupported_fields import ThinkingForms, UnsupportedFields
from parley.models.base import Model, ModelEvent, ModelRequest, ModelSetup, attach_endings, join_texts, read_event
from parley.models.catalog import model_info, without_long_context
from parley.models.encoding import Pieces, PrefixEncoder, encode_object
from parley.models.endpoint import EndpointFinder, ModelEndpoint
from parley.models.http.call import EVENT_STREAM, ConnectionPool, Deadlines, Trust, parse_refusal
from parley.models.tool_references import DEFER, REFERENCE, replace_references
from parley.protocol.base import Json

API_VERSION = "2023-06-01"
CACHE_MARK = "cache_control"
EFFORT = "effort"
SAMPLING = ("temperature", "top_p", "top_k")
NO_SAMPLING_VERSION = "2026-10-21"
"""The version of the API from which on no model takes sampling parameters."""
OPTIONAL = ("thinking", "output_config", "metadata", CACHE_MARK, *SAMPLING)
"""Fields of the API that compatible servers may not support."""
DEFERRAL = (DEFER, REFERENCE)
"""They need each other, so both are left out if a server does not support one."""
BETA_HEADER = "anthropic-beta"
TASK_BUDGET_BETA = "task-budgets-2026-03-13"
TOOL_SEARCH_BETA = "advanced-tool-use-2025-11-20"


class Anthropic:
    """A Messages API server."""

    def __init__(
        self,
        endpoint: ModelEndpoint | Callable[[], ModelEndpoint],
        deadlines: Deadlines | None = None,
        warn: Callable[[str], None] = lambda text: None,
        trust: Trust | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._endpoint = EndpointFinder(endpoint)
        self._deadlines = deadlines
        self._trust = trust
        self._environment = environment
        self._pool: ConnectionPool | None = None
        self._dropped = UnsupportedFields(warn)
        self._forms = ThinkingForms(warn)
        self._converts_for: frozenset[str] = frozenset()
        """The dropped fields that messages and tools are converted for."""
        self._messages = PrefixEncoder(convert_message)
        self._tools = PrefixEncoder()

    @classmethod
    def open(cls, setup: ModelSetup, name: str) -> Model:
        return cls(
            lambda: setup.find_endpoint("anthropic"),
            deadlines=setup.deadlines(),
            warn=setup.warn,
            trust=setup.trust(),
            environment=setup.environment,
        )

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream the events of one answer. Raises ModelError."""
        endpoint = await self._endpoint.find()
        pool = self._pool = self._pool or ConnectionPool(
            endpoint.base_url, self._deadlines, self._trust, self._environment
        )
        self._drop_sampling(request, endpoint)
        while True:
            request = self._forms.apply(request)
            betas = collect_betas(request, self._dropped.names)
            head = build_headers(request, endpoint)
            if betas:
                head[BETA_HEADER] = ",".join(betas)
            try:
                content = self.encode_body(request, endpoint, self._dropped.names)
                async with pool.post(endpoint.url("/v1/messages"), head, content, parse_error) as answer:
                    async for batch in answer.batches():
                        for event in arrange_events(batch, request):
                            if event.type == "message_start":
                                event.request_id = answer.headers.get("request-id")
                                event.quota = parse_quota(answer.headers) if has_quota(endpoint) else None
                            elif event.type == "message_stop":
                                answer.is_finished = True
                            answer.has_content = answer.has_content or is_content(event)
                            yield event
                    return
            except ModelError as exc:
                if not has_quota(endpoint):
                    exc.quota = None
                if exc.status == 401:
                    self._endpoint.forget()
                if exc.status is not None:
                    from parley.models.failures import add_advice

                    add_advice(exc, endpoint, request.model)
                if not self._forms.switch(exc, request):
                    fields = drop_fields(build_body(request, endpoint.extra_body), self._dropped.names)
                    self._dropped.record(exc, optional_fields(fields, betas))

    def _drop_sampling(self, request: ModelRequest, endpoint: ModelEndpoint) -> None:
        """Leave out the sampling parameters of CLAUDE_CODE_EXTRA_BODY that would be rejected."""
        version = endpoint.headers.get("anthropic-version", API_VERSION)
        if version < NO_SAMPLING_VERSION and model_info(request.model).takes_sampling:
            return
        for name in SAMPLING:
            if name in endpoint.extra_body and name not in self._dropped.names:
                self._dropped.drop(name, f"{name!r} is not sent: {request.model} does not take it")

    def encode_body(self, request: ModelRequest, endpoint: ModelEndpoint, dropped: Collection[str]) -> Pieces:
        """The JSON of a body without the dropped fields. Its long lists are mostly those of the request before."""
        if dropped != self._converts_for:
            self._converts_for = dropped = frozenset(dropped)
            self._messages = PrefixEncoder(partial(convert_message, dropped=dropped))
            self._tools = PrefixEncoder(partial(convert_tool, dropped=dropped))
        body = build_body(request, endpoint.extra_body)
        encoders = {"messages": self._messages, "tools": self._tools}
        lists = {name: [encoder.encode(body[name])] for name, encoder in encoders.items() if name in body}
        fields = drop_fields({name: [] if name in lists else value for name, value in body.items()}, dropped)
        return encode_object(fields, lists)

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()
            self._pool = None


def build_body(request: ModelRequest, extra: Json) -> Json:
    """The request body. The order of keys is fixed, because a changed prefix would miss the prompt cache."""
    fields: Json = {"model": without_long_context(request.model), "max_tokens": request.max_tokens}
    if request.system:
        fields["system"] = request.system
    if request.tools:
        fields["tools"] = request.tools
    if request.thinking is not None:
        fields["thinking"] = request.thinking
    if output := output_config(request):
        fields["output_config"] = output
    if request.session_id:
        fields["metadata"] = {"user_id": request.session_id}
    return {**fields, **extra, "messages": request.messages, "stream": True}


def collect_betas(request: ModelRequest, dropped: Collection[str]) -> list[str]:
    """The requested betas and those that the body needs, without the unsupported ones."""
    if BETA_HEADER in dropped:
        return []
    known = model_info(request.model)
    needed = [*known.betas, *([TASK_BUDGET_BETA] if request.task_budget is not None else [])]
    if request.thinking is not None and request.thinking["type"] == "enabled":
        needed += known.thinking_betas
    if any(map(contains, request.tools, repeat(DEFER))) and not drops_deferral(dropped):
        needed.append(TOOL_SEARCH_BETA)
    return [beta for beta in dict.fromkeys([*request.betas, *needed]) if beta not in dropped]


def output_config(request: ModelRequest) -> Json:
    fields: Json = {}
    if request.effort is not None:
        fields[EFFORT] = request.effort
    if request.task_budget is not None:
        fields["task_budget"] = {"type": "tokens", "total": request.task_budget}
    if request.output_schema is not None:
        fields["format"] = {"type": "json_schema", "schema": request.output_schema}
    return fields


def drop_fields(fields: Json, dropped: Collection[str]) -> Json:
    """The body without unsupported fields."""
    if not dropped:
        return fields
    remaining = {name: value for name, value in fields.items() if name not in dropped}
    if EFFORT in dropped and (output := remaining.pop("output_config", None)):
        rest = {name: value for name, value in output.items() if name != EFFORT}
        remaining |= {"output_config": rest} if rest else {}
    if drops_deferral(dropped):
        remaining["tools"] = [without_deferral(tool) for tool in fields.get("tools", ())]
        remaining["messages"] = replace_references(fields["messages"])
    return without_cache_mark(remaining) if CACHE_MARK in dropped else remaining


def convert_message(message: Json, dropped: Collection[str] = ()) -> list[Json]:
    """What is sent for a message: without what only the Responses API takes back, and without unsupported fields."""
    found = without_reasoning_items(message)
    if drops_deferral(dropped):
        found = replace_references(found)
    return [without_cache_mark(one) for one in found] if CACHE_MARK in dropped else found


def convert_tool(tool: Json, dropped: Collection[str]) -> list[Json]:
    """What is sent for a tool: without unsupported fields."""
    found = without_deferral(tool) if drops_deferral(dropped) else tool
    return [without_cache_mark(found) if CACHE_MARK in dropped else found]


def without_deferral(tool: Json) -> Json:
    return {key: value for key, value in tool.items() if key != DEFER}


def drops_deferral(dropped: Collection[str]) -> bool:
    return bool(dropped) and any(name in dropped for name in DEFERRAL)


def without_cache_mark(value: Any) -> Any:
    """The same JSON without cache markers at any depth."""
    if isinstance(value, dict):
        return {name: without_cache_mark(inner) for name, inner in value.items() if name != CACHE_MARK}
    return [without_cache_mark(inner) for inner in value] if isinstance(value, list) else value


def optional_fields(fields: Json, betas: Sequence[str]) -> Iterator[str]:
    """The optional fields that were sent, including nested cache markers."""
    yield from betas
    if betas:
        yield BETA_HEADER
    # Without its schema the answer would differ, so it is not optional.
    output = fields.get("output_config", {})
    has_schema = "format" in output
    if EFFORT in output:
        yield EFFORT
    yield from (name for name in OPTIONAL if name in fields and not (name == "output_config" and has_schema))
    if any(DEFER in tool for tool in fields.get("tools", ())):
        yield from DEFERRAL
    if CACHE_MARK.encode() in msgspec.json.encode(fields):
        yield CACHE_MARK


def build_headers(request: ModelRequest, endpoint: ModelEndpoint) -> dict[str, str]:
    fields = {**EVENT_STREAM, **request.headers, "anthropic-version": API_VERSION, **endpoint.headers}
    if endpoint.auth is not None:
        fields[endpoint.auth[0]] = endpoint.auth[1]
    return fields


def has_quota(endpoint: ModelEndpoint) -> bool:
    """Whether rate limit headers apply. They do not apply to a plain API key."""
    return endpoint.auth is not None and endpoint.auth[0] == "authorization"


def parse_error(status: int, headers: Mapping[str, str], content: bytes) -> ModelError:
    """The error of a response other than 200."""
    error = parse_refusal(status, headers, content)
    error.quota = found = parse_quota(headers)
    if status == 429 and found is not None and found.status == "rejected":
        error.retryable = False  # the window reopens only after hours
    return error


def is_content(event: ModelEvent) -> bool:
    """Whether the event is part of the answer. Pings and unknown events only show that the server is alive."""
    return event.type.startswith(("content_block_", "message_"))


def arrange_events(batch: list[bytes], request: ModelRequest) -> Iterator[ModelEvent]:
    """The events of a batch, related to each other. Raises ModelError."""
    events = parse_events(batch)
    if len(batch) > 1:
        if request.joins_texts:
            events = join_texts(events)
        if any(b"message_stop" in data for data in batch[-2:]):  # some servers send one more event
            events = attach_endings(events)
    return events


def parse_events(batch: Iterable[bytes]) -> Iterator[ModelEvent]:
    """The events of a batch. An answer in one piece becomes the events that would stream it. Raises ModelError."""
    for data in batch:
        event = parse_event(data)
        if event.type == "message":
            yield from stream_message(data)
        else:
            yield event


def stream_message(data: bytes) -> Iterator[ModelEvent]:
    """Raises ModelError if the message is invalid."""
    from parley.models.event_synthesis import message_json, synthesize_events

    try:
        given = msgspec.json.decode(data)
        empty = message_json(list(given["content"]), id="", model="", usage={})
        # Servers leave out what they do not count.
        message = {**empty, **{name: value for name, value in given.items() if value is not None}}
        yield from synthesize_events(message, chunk_chars=max(1, len(data)))
    except (KeyError, TypeError, AttributeError) as exc:
        raise ModelError(f"the model sent an invalid message: {exc!r}", retryable=True) from None


def parse_event(data: bytes) -> ModelEvent:
    """Raises ModelError for an error event or invalid data."""
    try:
        event = read_event(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ModelError(f"the model sent an invalid event: {exc}", retryable=True) from None
    if event.type == "error":
        error = event.error or {}
        kind = str(error.get("type", "api_error"))
        raise ModelError(str(error.get("message", "the model's stream ended early")), kind=kind, retryable=True)
    return event
