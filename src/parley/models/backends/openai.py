"""`openai:NAME`: any server that speaks the chat completions API, streamed.

Both directions are translated: the request (chat_request.py) and the stream (chat_stream.py),
so that the engine sees the Messages API. The server and its key come from the environment,
never from the model's name, which a project's settings may choose.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping

import msgspec

from parley.errors import ModelError
from parley.models.backends.chat_request import OPTIONAL, body
from parley.models.backends.chat_stream import ChatStream
from parley.models.backends.unsupported_fields import Dropped
from parley.models.base import Event, ModelRequest
from parley.models.endpoint import Endpoint
from parley.models.http.call import EVENT_STREAM, Deadlines, Pool, Trust, error_of, refusal
from parley.protocol.base import Json

# The names that the rest of the engine knows failures by.
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


class OpenAI:
    """One model at one server."""

    def __init__(
        self,
        endpoint: Endpoint | Callable[[], Endpoint],
        name: str,
        new_id: Callable[[], str],
        deadlines: Deadlines | None = None,
        warn: Callable[[str], None] = lambda text: None,
        trust: Trust | None = None,
    ) -> None:
        self._find = endpoint if callable(endpoint) else lambda: endpoint
        self._name = name
        self._new_id = new_id
        self._deadlines = deadlines
        self._trust = trust
        self._pool: Pool | None = None
        self._dropped = Dropped(warn)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Event, None]:
        """The events of one answer. Raises ModelError."""
        endpoint = await asyncio.to_thread(self._find)
        pool = self._pool = self._pool or Pool(endpoint.base_url, self._deadlines, self._trust)
        while True:
            fields = {**body(request, self._name, endpoint.declared, self._dropped.names), **endpoint.extra_body}
            content = msgspec.json.encode(fields)
            stream = ChatStream(
                model=self._name, new_id=self._new_id, taken=ids_in(request.messages), input_chars=len(content)
            )
            try:
                async with pool.post(
                    endpoint.url("/chat/completions"), headers(request, endpoint), content, failure
                ) as answer:
                    async for batch in answer.batches():
                        for data in batch:
                            for event in stream.feed(data):
                                if event.type == "message_start":
                                    event.request_id = answer.headers.get("x-request-id")
                                answer.has_grown = True
                                yield event
                        answer.is_over = stream.is_done
                for event in stream.end():
                    yield event
                return
            except ModelError as flaw:
                if stream.outlives_a_break:
                    # All was said before the line broke.
                    for event in stream.end():
                        yield event
                    return
                flaw.message = endpoint.without_key(flaw.message)
                self._dropped.note(flaw, [field for field in OPTIONAL if field in fields])

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()
            self._pool = None


def headers(request: ModelRequest, endpoint: Endpoint) -> dict[str, str]:
    fields = {**EVENT_STREAM, **request.headers, **endpoint.headers}
    if endpoint.auth is not None:
        fields[endpoint.auth[0]] = endpoint.auth[1]
    return fields


def failure(status: int, headers: Mapping[str, str], content: bytes) -> ModelError:
    """What an answer other than 200 means, in the names that failures of the Messages API have."""
    flaw = refusal(status, headers, content)
    code = error_of(content).get("code")
    if code in OUT_OF_MONEY:
        # It comes as a 429, but waiting does not help.
        flaw.kind, flaw.retryable = "billing_error", False
        flaw.message += " (billing)"
    elif code in TOO_LONG:
        flaw.kind = "prompt_too_long"
    elif status in KINDS:
        flaw.kind = KINDS[status]
    return flaw


def ids_in(messages: list[Json]) -> set[str]:
    """The ids that tool calls of the conversation have already."""
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    return {block["id"] for block in blocks if block.get("type") == "tool_use"}
