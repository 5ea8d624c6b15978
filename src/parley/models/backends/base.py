"""What model providers share: the call over HTTP, and fields that a server does not support.

A provider whose server streams its answer is a subclass of `HttpModel` in a file of its own, and a row in
`models/catalog.py`, which says where its address and its key come from:

    class Example(HttpModel):
        service = "example"                       # the name of the row
        path, headers = "/answers", {"example-version": "1"}
        error_kinds = {402: "billing_error"}      # the errors of responses other than 200; more in `parse_error`
        def encode_body(...): ...                 # the codec: a request as JSON,
        def open_stream(...): ...                 # and the events of the answer as those of the Messages API
        def list_optional(...): ...               # the fields that are left out if the server rejects them

docs/extending.md has a complete one.

The engine retries a failed call; here a request is only repeated without an optional field that the server rejected.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping
from typing import ClassVar

import msgspec

from parley.errors import ModelError
from parley.models.base import Model, ModelEvent, ModelRequest, ModelSetup, join_texts, read_event
from parley.models.encoding import Pieces
from parley.models.endpoint import ModelEndpoint
from parley.models.http.call import EVENT_STREAM, WRONG_CONTENT, ConnectionPool, Deadlines, Trust

BAD_REQUEST = (400, 422, 500)
"""Some servers report a request that they cannot validate as 500."""
REFUSAL_PATTERN = (
    r"(?i)extra (inputs|fields|parameters|arguments)|un(known|recogni[sz]ed|supported|expected)|additional propert"
    r"|(is|are|was) not (supported|permitted|allowed|recogni[sz]ed|available)|(does|do) not support"
)


class AnswerStream:
    """The events of one answer. A subclass converts those of another API to those of the Messages API."""

    def __init__(self) -> None:
        self.is_done = False
        """Whether the server sent the end of the answer."""

    @property
    def can_end_early(self) -> bool:
        """Whether the answer was complete before the connection broke."""
        return False

    def read(self, batch: list[bytes]) -> Iterator[ModelEvent]:
        """The events of what arrived together. Raises ModelError."""
        for data in batch:
            event = parse_event(data)
            if event.type == "message":
                yield from stream_message(data)
            else:
                self.is_done = self.is_done or event.type == "message_stop"
                yield event

    def end(self) -> Iterable[ModelEvent]:
        """The events after the last data. Raises ModelError."""
        return ()


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


def stream_message(data: bytes) -> Iterator[ModelEvent]:
    """The events that would stream an answer in one piece. Raises ModelError if it is invalid."""
    from parley.models.event_synthesis import message_json, synthesize_events

    try:
        given = msgspec.json.decode(data)
        empty = message_json(list(given["content"]), id="", model="", usage={})
        # Servers leave out what they do not count.
        message = {**empty, **{name: value for name, value in given.items() if value is not None}}
        yield from synthesize_events(message, chunk_chars=max(1, len(data)))
    except (KeyError, TypeError, AttributeError) as exc:
        raise ModelError(f"the model sent an invalid message: {exc!r}", retryable=True) from None


def is_content(event: ModelEvent) -> bool:
    """Whether the event is part of the answer. Pings and unknown events only show that the server is alive."""
    return event.type.startswith(("content_block_", "message_"))


class UnsupportedFields:
    """The optional fields that a server rejected. They are not sent again."""

    def __init__(self, warn: Callable[[str], None], names: Iterable[str] = ()) -> None:
        self.names = set(names)
        self._warn = warn

    def record(self, exc: ModelError, sent: Iterable[str]) -> None:
        """Drop the field that an error names, so that the request can be repeated. Raises any other error."""
        name = find_rejected_field(exc, sent)
        if name is None:
            raise exc
        self.drop(name, f"the model's server rejected the field {name!r} ({exc.message[:200]}); it is not sent again")

    def drop(self, name: str, reason: str) -> None:
        self.names.add(name)
        self._warn(f"warning: {reason}")


def find_rejected_field(exc: ModelError, sent: Iterable[str]) -> str | None:
    """The optional field that the error rejects, of those that were sent."""
    if exc.status not in BAD_REQUEST or re.search(REFUSAL_PATTERN, exc.message) is None:
        return None
    return next((name for name in sent if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", exc.message)), None)


class HttpModel:
    """A model on a server."""

    service: ClassVar[str]
    """Its row in the catalog of backends."""
    path: ClassVar[str]
    """Of the API, after the base URL."""
    headers: ClassVar[Mapping[str, str]] = {}
    """Sent with every request."""
    request_id_header: ClassVar[str] = "x-request-id"
    error_kinds: ClassVar[Mapping[int, str]] = {}
    """The kind of an error by status, in the names of the Messages API; else that of the response."""

    def __init__(
        self,
        endpoint: ModelEndpoint | Callable[[], ModelEndpoint],
        name: str = "",
        new_id: Callable[[], str] = str,
        *,
        deadlines: Deadlines | None = None,
        warn: Callable[[str], None] = lambda text: None,
        trust: Trust | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`name` is the model, `new_id` makes the ids that the server does not give.

        `endpoint` may be a function that finds it, which can be slow because it may run a key helper. It is called in a
        thread, for the first request and again after the key was rejected.
        """
        self._find_endpoint = endpoint if callable(endpoint) else None
        self._endpoint = None if callable(endpoint) else endpoint
        self.name = name
        self.new_id = new_id
        self._deadlines = deadlines
        self._trust = trust
        self._environment = environment
        self._pool: ConnectionPool | None = None
        self._warn = warn
        self.dropped = UnsupportedFields(warn)

    @classmethod
    def open(cls, setup: ModelSetup, name: str) -> Model:
        return cls(
            lambda: setup.find_endpoint(cls.service, name),
            name,
            setup.new_id,
            deadlines=setup.deadlines(),
            warn=setup.warn,
            trust=setup.trust(),
            environment=setup.environment,
        )

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream the events of one answer. Raises ModelError."""
        request.report_wait("")
        if self._endpoint is None and self._find_endpoint is not None:
            # Not a daemon thread: the process ends after a helper, which ends when it is told to.
            self._endpoint = await asyncio.to_thread(self._find_endpoint)
        endpoint = self._endpoint
        assert endpoint is not None
        pool = self._pool = self._pool or ConnectionPool(
            endpoint.base_url, self._deadlines, self._trust, self._environment
        )
        while True:
            request = self.adapt_request(request, endpoint)
            content = self.encode_body(request, endpoint, self.dropped.names)
            headers, stream = self.build_headers(request, endpoint), self.open_stream(sum(map(len, content)))
            try:
                url = endpoint.url(self.path)
                async with pool.post(url, headers, content, self.parse_error, request.report_wait) as answer:
                    async for batch in answer.batches():
                        for event in self.arrange(stream.read(batch), batch, request):
                            if event.type == "message_start":
                                self.describe_start(event, answer.headers, endpoint)
                            answer.has_content = answer.has_content or is_content(event)
                            yield event
                        answer.is_finished = stream.is_done
                for event in stream.end():
                    yield event
                return
            except ModelError as exc:
                if stream.can_end_early:
                    for event in stream.end():
                        yield event
                    return
                self.explain_error(exc, stream, endpoint)
                if exc.status is not None or exc.kind == WRONG_CONTENT:
                    from parley.models.failures import add_advice

                    add_advice(exc, endpoint, request.model)
                if exc.status == 401 and self._find_endpoint is not None:
                    self._endpoint = None  # a new key may be found
                if not self.switch_form(exc, request):
                    self.dropped.record(exc, self.list_optional(request, endpoint))

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    # What a provider says.

    def encode_body(self, request: ModelRequest, endpoint: ModelEndpoint, dropped: Collection[str]) -> Pieces:
        """The JSON of a body without the dropped fields. Its long lists are mostly those of the request before."""
        raise NotImplementedError

    def open_stream(self, body_bytes: int) -> AnswerStream:
        """For the answer to the request that was encoded last."""
        return AnswerStream()

    def list_optional(self, request: ModelRequest, endpoint: ModelEndpoint) -> Iterable[str]:
        """The optional fields of a body."""
        return ()

    def parse_error(self, status: int, headers: Mapping[str, str], content: bytes) -> ModelError:
        """The error of a response other than 200."""
        from parley.models.failures import parse_refusal

        error = parse_refusal(status, headers, content)
        error.kind = self.error_kinds.get(status, error.kind)
        return error

    def build_headers(self, request: ModelRequest, endpoint: ModelEndpoint) -> dict[str, str]:
        fields = {**EVENT_STREAM, **request.headers, **self.headers, **endpoint.headers}
        if endpoint.auth is not None:
            fields[endpoint.auth[0]] = endpoint.auth[1]
        return fields

    def adapt_request(self, request: ModelRequest, endpoint: ModelEndpoint) -> ModelRequest:
        """The request in the form that the server accepts."""
        return request

    def switch_form(self, exc: ModelError, sent: ModelRequest) -> bool:
        """Whether the error rejects a form for which `adapt_request` has another one from now on."""
        return False

    def arrange(self, events: Iterator[ModelEvent], batch: list[bytes], request: ModelRequest) -> Iterator[ModelEvent]:
        """The events of a batch, related to each other."""
        return join_texts(events) if request.joins_texts else events

    def describe_start(self, event: ModelEvent, headers: Mapping[str, str], endpoint: ModelEndpoint) -> None:
        """Add what the headers of the response say to the start of an answer."""
        event.request_id = headers.get(self.request_id_header)

    def explain_error(self, exc: ModelError, stream: AnswerStream, endpoint: ModelEndpoint) -> None:
        """Change an error by what is known of the stream and the server."""
