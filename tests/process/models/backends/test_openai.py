"""OpenAI's APIs over real sockets: requests and failures. What both have is tested on both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from parley.models.backends.openai import OpenAI
from parley.models.backends.responses import OpenAIResponses
from parley.models.base import ModelEvent, ModelRequest
from parley.models.endpoint import ModelEndpoint
from parley.protocol.base import Json, Struct
from tests.helpers.http_server import Answer, Loopback, Request, cut_off, loopback, silence, stream, whole
from tests.helpers.models import asking, assistant, counting, heard, problem, refusal, user

KEY = ("authorization", "Bearer sk-secret")
HELLO = asking(user("Hello"), effort="low")


def sse(*chunks: Json) -> bytes:
    return b"".join(b"data: " + msgspec.json.encode(chunk) + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


def delta(finish: str | None = None, **fields: Any) -> Json:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


CREATED: Json = {"type": "response.created", "response": {"status": "in_progress"}}
TEXT: Json = {"type": "response.output_text.delta", "output_index": 0, "delta": "Hi"}
MESSAGE: Json = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}
RESPONSE: Json = {"object": "response", "status": "completed", "output": [MESSAGE]}
COMPLETED: Json = {"type": "response.completed", "response": RESPONSE}


class Api(Struct, frozen=True):
    """One of the APIs."""

    model: type[OpenAI]
    path: str
    events: tuple[Json, ...]
    """An answer, in events."""
    whole: Json
    """The same answer in one piece."""


CHAT = Api(
    OpenAI,
    "/chat/completions",
    (delta(content="Hi"), delta("stop")),
    {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]},
)
RESPONSES = Api(OpenAIResponses, "/responses", (CREATED, TEXT, COMPLETED), RESPONSE)
both_apis = pytest.mark.parametrize("api", [CHAT, RESPONSES], ids=["chat", "responses"])
ANSWER = stream(sse(*CHAT.events))
KINDS = ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta"]


@asynccontextmanager
async def talking(
    *answers: Answer, api: Api = CHAT, warnings: list[str] | None = None, path: str = "/v1", **endpoint: Any
) -> AsyncIterator[tuple[Loopback, OpenAI]]:
    """A server with these answers, and a model connected to it."""
    told: list[str] = warnings if warnings is not None else []
    async with loopback(*answers) as server:
        where = ModelEndpoint(**{"base_url": server.url + path, "auth": KEY, **endpoint})
        model = api.model(where, "gpt", counting(), warn=told.append)
        try:
            yield server, model
        finally:
            await model.close()


async def sent(
    request: ModelRequest, *answers: Answer, api: Api = CHAT, **options: Any
) -> tuple[list[Request], list[ModelEvent]]:
    async with talking(*(answers or (stream(sse(*api.events)),)), api=api, **options) as (server, model):
        came = await heard(model, request)
        return server.heard, came


@both_apis
async def test_a_request_goes_to_the_api_with_the_key_in_its_header(api: Api) -> None:
    (request,), came = await sent(HELLO, headers={"x-team": "red"}, api=api)

    assert request.line == f"POST /v1{api.path} HTTP/1.1"
    assert (request.headers["authorization"], request.headers["x-team"]) == ("Bearer sk-secret", "red")
    assert b"sk-secret" not in request.body
    assert [event.type for event in came] == [*KINDS, "message_stop"]


@both_apis
async def test_a_query_of_the_base_url_stays_after_the_path(api: Api) -> None:
    (request,), _ = await sent(HELLO, path="/openai?api-version=1", api=api)

    assert request.line == f"POST /openai{api.path}?api-version=1 HTTP/1.1"


@both_apis
async def test_extra_fields_go_along(api: Api) -> None:
    (request,), _ = await sent(HELLO, extra_body={"top_k": 5}, api=api)

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


@pytest.mark.parametrize(
    ("status", "words", "param", "field"),
    [
        (400, "Unsupported parameter: 'reasoning.effort' is not supported with this model.", None, "reasoning.effort"),
        (400, "Encrypted content is not supported with this model.", "include", "include"),
        (400, "Unsupported value: 'low' is not supported with this model.", "reasoning.effort", "reasoning.effort"),
        (422, "prompt_cache_key: Extra inputs are not permitted", None, "prompt_cache_key"),
        (500, "[{'loc': ('body', 'store'), 'msg': 'Extra inputs are not permitted'}]", None, "store"),
    ],
)
async def test_a_field_of_the_responses_api_that_the_server_does_not_know_is_left_out_from_then_on(
    status: int, words: str, param: str | None, field: str
) -> None:
    warnings: list[str] = []
    request = asking(user("Hello"), effort="low", thinking={"type": "adaptive"}, session_id="s")

    again = stream(sse(*RESPONSES.events))
    answers = (whole(status, error(words, param=param)), again, again)
    async with talking(*answers, api=RESPONSES, warnings=warnings) as (server, model):
        await heard(model, request)
        await heard(model, request)
        first, second, third = [msgspec.json.decode(request.body) for request in server.heard]
    outer, _, inner = field.partition(".")
    if inner:
        assert first[outer].pop(inner)
    else:
        assert first.pop(outer) is not None

    assert second == third == first
    assert [repr(field) in warning for warning in warnings] == [True]


async def test_a_server_that_wants_the_length_under_its_other_name_gets_it() -> None:
    words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    (first, second), _ = await sent(HELLO, whole(400, error(words)), ANSWER)

    assert msgspec.json.decode(first.body)["max_tokens"] == 100
    assert msgspec.json.decode(second.body)["max_completion_tokens"] == 100


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, error("no"), problem("no", status=400, kind="invalid_request_error")),
        (401, error("key", type="x"), problem("key", status=401, kind="authentication_error", retryable=True)),
        (404, error("model"), problem("model", status=404, kind="not_found_error")),
        (429, error("slow"), problem("slow", status=429, kind="rate_limit_error", retryable=True)),
        (
            429,
            error("quota", code="insufficient_quota"),
            problem("quota (billing)", status=429, kind="billing_error"),
        ),
        (
            400,
            error("too many tokens", code="context_length_exceeded"),
            problem("too many tokens", status=400, kind="prompt_too_long"),
        ),
        (
            500,
            b'data: {"error":{"message":"no start"}}\n\ndata: [DONE]\n\n',
            problem("no start", status=500, kind="api_error", retryable=True),
        ),
        (500, b"oh", problem("oh", status=500, kind="api_error", retryable=True)),
        (503, b"busy", problem("busy", status=503, kind="overloaded_error", retryable=True)),
        (400, b'{"detail":"no"}', problem('{"detail":"no"}', status=400, kind="invalid_request_error")),
    ],
)
@both_apis
async def test_a_failure_has_the_name_that_the_engine_knows(
    api: Api, status: int, body: bytes, expected: dict[str, Any]
) -> None:
    async with talking(whole(status, body), api=api) as (_, model):
        result = await refusal(model, HELLO)

    assert {**result, "advice": ""} == expected


@both_apis
async def test_an_error_in_the_stream_is_an_error(api: Api) -> None:
    async with talking(stream(sse(api.events[0], {"error": {"message": "gone"}})), api=api) as (_, model):
        result = await refusal(model, HELLO)

    assert result == problem("gone", kind="api_error", retryable=True)


async def test_a_redirect_is_not_followed_and_the_key_stays_here() -> None:
    async with loopback() as elsewhere, talking(whole(307, b"", {"location": elsewhere.url})) as (_, model):
        result = await refusal(model, HELLO), elsewhere.heard

    assert result == (problem("the API answered with a redirect, and redirects are not followed", status=307), [])


@pytest.mark.parametrize(
    "end",
    [
        lambda api: cut_off(sse(*api.events)),
        lambda api: silence(sse(*api.events)),
        lambda api: whole(200, msgspec.json.encode(api.whole)),
    ],
    ids=["breaks", "stays open", "is no stream"],
)
@both_apis
async def test_an_answer_that_is_all_there_counts_however_its_connection_ends(
    api: Api, end: Callable[[Api], Answer]
) -> None:
    _, came = await sent(HELLO, end(api), api=api)

    assert [event.type for event in came] == [*KINDS, "message_stop"]


async def test_a_call_whose_arguments_may_be_missing_does_not_outlive_a_break() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "Stop", "arguments": ""}}

    unfinished = sse(delta("tool_calls", tool_calls=[call])).removesuffix(b"data: [DONE]\n\n")
    async with talking(cut_off(unfinished)) as (_, model):
        result = await refusal(model, HELLO)

    assert result["kind"] == "connection_failed"


@pytest.mark.parametrize("item", ["reasoning", "message"])
async def test_a_connection_that_breaks_is_an_error_that_names_the_item(item: str) -> None:
    opened: Json = {"type": "response.output_item.added", "output_index": 0, "item": {"type": item}}

    async with talking(cut_off(sse(CREATED, opened).removesuffix(b"data: [DONE]\n\n")), api=RESPONSES) as (_, model):
        result = await refusal(model, HELLO)
    name = {"reasoning": "a reasoning item", "message": "a message"}[item]

    assert result["message"].endswith(f"(the stream broke off inside {name})")
    assert (result["kind"], result["retryable"]) == ("connection_failed", True)


@both_apis
async def test_an_error_with_the_status_of_success_is_an_error(api: Api) -> None:
    async with talking(whole(200, error("busy: sk-secret")), api=api) as (_, model):
        result = await refusal(model, HELLO)

    assert result["message"] == "busy: [redacted]"
