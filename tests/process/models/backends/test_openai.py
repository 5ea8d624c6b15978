"""The chat completions API over real sockets: requests and failures."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from parley.models.backends.openai import OpenAI
from parley.models.base import ModelEvent, ModelRequest
from parley.models.endpoint import ModelEndpoint
from parley.protocol.base import Json
from tests.helpers.http_server import Answer, Loopback, Request, cut_off, loopback, silence, stream, whole
from tests.helpers.models import asking, assistant, counting, flaw, heard, refusal, user

KEY = ("authorization", "Bearer sk-secret")
HELLO = asking(user("Hello"), effort="low")


def sse(*chunks: Json) -> bytes:
    return b"".join(b"data: " + msgspec.json.encode(chunk) + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


def delta(finish: str | None = None, **fields: Any) -> Json:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


ANSWER = stream(sse(delta(content="Hi"), delta("stop")))
KINDS = ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta"]


@asynccontextmanager
async def talking(
    *answers: Answer, warnings: list[str] | None = None, path: str = "/v1", **endpoint: Any
) -> AsyncIterator[tuple[Loopback, OpenAI]]:
    """A server with these answers, and a model connected to it."""
    told: list[str] = warnings if warnings is not None else []
    async with loopback(*answers) as server:
        where = ModelEndpoint(**{"base_url": server.url + path, "auth": KEY, **endpoint})
        model = OpenAI(where, "gpt", counting(), warn=told.append)
        try:
            yield server, model
        finally:
            await model.close()


async def sent(request: ModelRequest, *answers: Answer, **options: Any) -> tuple[list[Request], list[ModelEvent]]:
    async with talking(*(answers or (ANSWER,)), **options) as (server, model):
        came = await heard(model, request)
        return server.heard, came


async def test_a_request_goes_to_the_chat_completions_with_the_key_in_its_header() -> None:
    (request,), came = await sent(HELLO, headers={"x-team": "red"})

    assert request.line == "POST /v1/chat/completions HTTP/1.1"
    assert (request.headers["authorization"], request.headers["x-team"]) == ("Bearer sk-secret", "red")
    assert b"sk-secret" not in request.body
    assert [event.type for event in came] == [*KINDS, "message_stop"]


async def test_a_query_of_the_base_url_stays_behind_the_path() -> None:
    (request,), _ = await sent(HELLO, path="/openai?api-version=1")

    assert request.line == "POST /openai/chat/completions?api-version=1 HTTP/1.1"


async def test_extra_fields_go_along() -> None:
    (request,), _ = await sent(HELLO, extra_body={"top_k": 5})

    assert msgspec.json.decode(request.body)["top_k"] == 5


async def test_a_call_id_of_an_earlier_turn_is_not_used_again() -> None:
    piece = {"index": 0, "id": "call_0", "function": {"name": "Read", "arguments": "{}"}}
    before = assistant({"type": "tool_use", "id": "call_0", "name": "Read", "input": {}})
    _, came = await sent(asking(before), stream(sse(delta(tool_calls=[piece]), delta("tool_calls"))))

    assert came[1].content_block == {"type": "tool_use", "id": "call_2", "name": "Read", "input": {}}


def error(message: str, **fields: Any) -> bytes:
    return msgspec.json.encode({"error": {"message": message, **fields}})


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ("Unknown parameter: 'stream_options'.", "stream_options"),
        ("Extra parameters ['stream_options'] are not allowed", "stream_options"),
        ("Unrecognized request argument supplied: reasoning_effort", "reasoning_effort"),
        ("stream_options: Extra inputs are not permitted", "stream_options"),
    ],
)
async def test_a_field_that_the_server_does_not_know_is_left_out_from_then_on(words: str, field: str) -> None:
    warnings: list[str] = []

    answers = (whole(400, error(words)), ANSWER, ANSWER)
    async with talking(*answers, warnings=warnings, declared=frozenset({"reasoning_effort"})) as (server, model):
        await heard(model, HELLO)
        await heard(model, HELLO)
        first, second, third = [msgspec.json.decode(request.body) for request in server.heard]

    assert field in first
    assert second == third == {name: value for name, value in first.items() if name != field}
    assert warnings == [
        f"warning: the model's server rejected the field {field!r} ({words}); it is not sent again",
    ]


async def test_a_server_that_wants_the_length_under_its_other_name_gets_it() -> None:
    words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    (first, second), _ = await sent(HELLO, whole(400, error(words)), ANSWER)

    assert msgspec.json.decode(first.body)["max_tokens"] == 100
    assert msgspec.json.decode(second.body)["max_completion_tokens"] == 100


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, error("no"), flaw("no", status=400, kind="invalid_request_error")),
        (401, error("key", type="x"), flaw("key", status=401, kind="authentication_error", retryable=True)),
        (404, error("model"), flaw("model", status=404, kind="not_found_error")),
        (429, error("slow"), flaw("slow", status=429, kind="rate_limit_error", retryable=True)),
        (
            429,
            error("quota", code="insufficient_quota"),
            flaw("quota (billing)", status=429, kind="billing_error"),
        ),
        (
            400,
            error("too many tokens", code="context_length_exceeded"),
            flaw("too many tokens", status=400, kind="prompt_too_long"),
        ),
        (500, b"oh", flaw("oh", status=500, kind="api_error", retryable=True)),
        (503, b"busy", flaw("busy", status=503, kind="overloaded_error", retryable=True)),
        (400, b'{"detail":"no"}', flaw('{"detail":"no"}', status=400, kind="invalid_request_error")),
    ],
)
async def test_a_failure_has_the_name_that_the_engine_knows(status: int, body: bytes, expected: dict[str, Any]) -> None:
    async with talking(whole(status, body)) as (_, model):
        result = await refusal(model, HELLO)

    assert result == expected


async def test_an_error_in_the_stream_is_an_error() -> None:
    async with talking(stream(sse(delta(content="Hi"), {"error": {"message": "gone"}}))) as (_, model):
        result = await refusal(model, HELLO)

    assert result == flaw("gone", kind="api_error", retryable=True)


async def test_a_redirect_is_not_followed_and_the_key_stays_here() -> None:
    async with loopback() as elsewhere, talking(whole(307, b"", {"location": elsewhere.url})) as (_, model):
        result = await refusal(model, HELLO), elsewhere.heard

    assert result == (flaw("the API answered with a redirect, and redirects are not followed", status=307), [])


@pytest.mark.parametrize(
    "answer",
    [
        cut_off(sse(delta(content="Hi"), delta("stop"))),
        silence(sse(delta(content="Hi"), delta("stop"))),
        whole(200, msgspec.json.encode({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]})),
    ],
    ids=["breaks", "stays open", "is no stream"],
)
async def test_an_answer_that_is_all_there_counts_however_its_connection_ends(answer: Answer) -> None:
    _, came = await sent(HELLO, answer)

    assert [event.type for event in came] == [*KINDS, "message_stop"]


async def test_a_call_whose_arguments_may_be_missing_does_not_outlive_a_break() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "Stop", "arguments": ""}}

    unfinished = sse(delta("tool_calls", tool_calls=[call])).removesuffix(b"data: [DONE]\n\n")
    async with talking(cut_off(unfinished)) as (_, model):
        result = await refusal(model, HELLO)

    assert result["kind"] == "connection_failed"


async def test_an_error_with_the_status_of_success_is_an_error() -> None:
    async with talking(whole(200, error("busy: sk-secret"))) as (_, model):
        result = await refusal(model, HELLO)

    assert result["message"] == "busy: [redacted]"
