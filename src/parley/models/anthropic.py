"""The Anthropic Messages API, at any base URL. Its events are passed on byte for byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping

import msgspec

from parley.errors import ModelError
from parley.models.base import Event, ModelRequest, read_event
from parley.models.http import EVENT_STREAM, Deadlines, Pool, refusal, without_userinfo
from parley.protocol.base import Json, Struct

API_VERSION = "2023-06-01"


class Endpoint(Struct, frozen=True, kw_only=True):
    """Where the API is and how it is entered."""

    base_url: str
    auth: tuple[str, str] | None
    """The header that carries the key; None where no key is needed."""
    headers: Mapping[str, str] = {}
    extra_body: Json = {}

    def __repr__(self) -> str:
        return f"Endpoint({without_userinfo(self.base_url)})"


class Anthropic:
    """One connection pool to one endpoint.

    The endpoint may be a function that finds it: a key helper takes its time, so it is
    called in a thread, when the first request needs it and again after a key was refused.
    """

    def __init__(self, endpoint: Endpoint | Callable[[], Endpoint], deadlines: Deadlines | None = None) -> None:
        self._find = endpoint if callable(endpoint) else None
        self._endpoint: Endpoint | None = None if callable(endpoint) else endpoint
        self._deadlines = deadlines
        self._pool: Pool | None = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Event, None]:
        """The events of one answer. Raises ModelError."""
        endpoint = await self._found()
        pool = self._pool = self._pool or Pool(endpoint.base_url, self._deadlines)
        url = f"{endpoint.base_url.rstrip('/')}/v1/messages"
        content = msgspec.json.encode(body(request, endpoint.extra_body))
        try:
            async with pool.post(url, headers(request, endpoint), content, refusal) as answer:
                async for batch in answer.batches():
                    for data in batch:
                        event = understood(data)
                        if event.type == "message_start":
                            event.request_id = answer.headers.get("request-id")
                        yield event
        except ModelError as flaw:
            if flaw.status == 401 and self._find is not None:
                self._endpoint = None
            raise

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    async def _found(self) -> Endpoint:
        """Raises ModelError."""
        if self._endpoint is None and self._find is not None:
            self._endpoint = await asyncio.to_thread(self._find)
        assert self._endpoint is not None
        return self._endpoint


def body(request: ModelRequest, extra: Json) -> Json:
    """The request's JSON. The order of keys is fixed: a changed prefix would miss the prompt cache."""
    fields: Json = {"model": request.model, "max_tokens": request.max_tokens}
    if request.system:
        fields["system"] = request.system
    if request.tools:
        fields["tools"] = request.tools
    if request.thinking is not None:
        fields["thinking"] = request.thinking
    if request.effort is not None:
        fields["output_config"] = {"effort": request.effort}
    if request.session_id:
        fields["metadata"] = {"user_id": request.session_id}
    return {**fields, **extra, "messages": request.messages, "stream": True}


def headers(request: ModelRequest, endpoint: Endpoint) -> dict[str, str]:
    fields = {
        **EVENT_STREAM,
        "anthropic-version": API_VERSION,
        **endpoint.headers,
    }
    if endpoint.auth is not None:
        fields[endpoint.auth[0]] = endpoint.auth[1]
    if request.betas:
        fields["anthropic-beta"] = ",".join(request.betas)
    return fields


def understood(data: bytes) -> Event:
    """Raises ModelError for an error event or a line that is no event."""
    try:
        event = read_event(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as flaw:
        raise ModelError(f"the model sent an event that cannot be read: {flaw}", retryable=True) from None
    if event.type == "error":
        error = event.error or {}
        kind = str(error.get("type", "api_error"))
        raise ModelError(str(error.get("message", "the stream broke off")), kind=kind, retryable=True)
    return event
