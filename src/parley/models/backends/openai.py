"""`openai:NAME`: any server with the chat completions API, streamed.

The request (chat_request.py) and the stream (chat_stream.py) are converted, so that the engine sees the Messages API.
`responses.py` is the same for the Responses API.
The server and its key come from the environment. They never come from the model's name, which project settings can set.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import ClassVar, Protocol

import msgspec

from parley.errors import ModelError
from parley.models.backends import chat_request
from parley.models.backends.chat_request import collect_call_ids
from parley.models.backends.chat_stream import ChatStream
from parley.models.backends.unsupported_fields import UnsupportedFields
from parley.models.base import Model, ModelEvent, ModelRequest, ModelSetup, join_texts
from parley.models.encoding import Convert, Pieces, PrefixEncoder, encode_object
from parley.models.endpoint import EndpointFinder, ModelEndpoint
from parley.models.http.call import EVENT_STREAM, ConnectionPool, Deadlines, Trust, parse_refusal, read_error
from parley.protocol.base import Json

# Error types by status, in the names of the Messages API.
KINDS = {
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
OUT_OF_MONEY = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
TOO_LONG = ("context_length_exceeded", "string_above_max_length")


class AnswerStream(Protocol):
    """Converts the data of server-sent events to Messages API events."""

    @property
    def is_done(self) -> bool:
        """Whether the server sent the end of the answer."""

    @property
    def can_end_early(self) -> bool:
        """Whether the answer was complete before the connection broke."""

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Raises ModelError."""

    def end(self) -> Iterator[ModelEvent]:
        """The events after the last data. Raises ModelError."""


class OpenAI:
    """One model on one server."""

    service: ClassVar[str] = "openai"
    path: ClassVar[str] = "/chat/completions"
    conversation_field: ClassVar[str] = "messages"

    def __init__(
        self,
        endpoint: ModelEndpoint | Callable[[], ModelEndpoint],
        name: str,
        new_id: Callable[[], str],
        deadlines: Deadlines | None = None,
        warn: Callable[[str], None] = lambda text: None,
        trust: Trust | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._endpoint = EndpointFinder(endpoint)
        self._name = name
        self._new_id = new_id
        self._deadlines = deadlines
        self._trust = trust
        self._environment = environment
        self._pool: ConnectionPool | None = None
        self._dropped = UnsupportedFields(warn)
        self._tools = PrefixEncoder(self._convert_tool)
        self._messages = PrefixEncoder()
        self._converts_for: tuple[frozenset[str], frozenset[str]] | None = None
        """The declared and dropped fields that messages are converted for."""

    @classmethod
    def open(cls, setup: ModelSetup, name: str) -> Model:
        return cls(
            lambda: setup.find_endpoint(cls.service),
            name,
            setup.new_id,
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
        while True:
            content = self.encode_body(request, endpoint, self._dropped.names)
            stream = self._open_stream(self._messages.list_names(), sum(map(len, content)))
            try:
                async with pool.post(
                    endpoint.url(self.path), build_headers(request, endpoint), content, parse_error
                ) as answer:
                    async for batch in answer.batches():
                        events = (event for data in batch for event in stream.feed(data))
                        for event in join_texts(events) if request.joins_texts else events:
                            if event.type == "message_start":
                                event.request_id = answer.headers.get("x-request-id")
                            answer.has_content = True
                            yield event
                        answer.is_finished = stream.is_done
                for event in stream.end():
                    yield event
                return
            except ModelError as exc:
                if stream.can_end_early:
                    # The answer was complete before the connection broke.
                    for event in stream.end():
                        yield event
                    return
                exc.message = self._locate(exc, stream)
                if exc.status is not None:
                    from parley.models.failures import add_advice

                    add_advice(exc, endpoint, self._name)
                if exc.status == 401:
                    self._endpoint.forget()
                self._dropped.record(exc, self._optional_fields(request, endpoint))

    def encode_body(self, request: ModelRequest, endpoint: ModelEndpoint, dropped: Collection[str]) -> Pieces:
        """The JSON of a body without the dropped fields. Its long lists are mostly those of the request before."""
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
        return chat_request.build_fields(request, self._name, endpoint.declared, dropped)

    def _make_convert(self, declared: Collection[str], dropped: Collection[str]) -> Convert:
        """The conversion of messages."""
        keeps = chat_request.keeps_reasoning(declared, dropped)
        return partial(chat_request.convert_message, keeps_reasoning=keeps)

    def _convert_tool(self, tool: Json) -> list[Json]:
        return chat_request.convert_tool(tool)

    def _opening(self, request: ModelRequest) -> list[Json]:
        """The converted messages before the conversation."""
        return chat_request.system_messages(request)

    def _open_stream(self, taken: Collection[str], input_chars: int) -> AnswerStream:
        return ChatStream(model=self._name, new_id=self._new_id, taken=taken, input_chars=input_chars)

    def _optional_fields(self, request: ModelRequest, endpoint: ModelEndpoint) -> Iterable[str]:
        """The optional fields of a body."""
        fields = {**self._build_fields(request, endpoint, self._dropped.names), **endpoint.extra_body}
        return [field for field in chat_request.OPTIONAL if field in fields]

    def _locate(self, exc: ModelError, stream: AnswerStream) -> str:
        """The text of an error, with what is known of its place in the stream."""
        return exc.message

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()
            self._pool = None


def build_headers(request: ModelRequest, endpoint: ModelEndpoint) -> dict[str, str]:
    fields = {**EVENT_STREAM, **request.headers, **endpoint.headers}
    if endpoint.auth is not None:
        fields[endpoint.auth[0]] = endpoint.auth[1]
    return fields


def parse_error(status: int, headers: Mapping[str, str], content: bytes) -> ModelError:
    """The error of a response other than 200, with the error types of the Messages API."""
    error = parse_refusal(status, headers, content)
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
    elif status in KINDS:
        error.kind = KINDS[status]
    return error
