"""The Messages API over real sockets: requests, streams and failures."""

from __future__ import annotations

import asyncio
import gzip
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from parley.errors import ModelError
from parley.models.accumulator import MessageAccumulator
from parley.models.backends.anthropic import Anthropic
from parley.models.base import ModelEvent, ModelRequest, read_event
from parley.models.endpoint import ModelEndpoint, is_loopback
from parley.models.http.call import BAD_PROXY, Deadlines
from parley.protocol.base import Json
from tests.helpers.http_server import (
    Answer,
    Loopback,
    Request,
    cut_off,
    endless,
    loopback,
    self_signed,
    silence,
    stream,
    until_close,
    whole,
)
from tests.helpers.models import asking, assistant, heard, problem, refusal, text, user
from tests.helpers.ports import free_port

START = b'{"type":"message_start","message":{"id":"msg_1","model":"m","usage":{"input_tokens":3}}}'
DELTA = '{ "type": "content_block_delta",  "index": 0, "delta": {"type":"text_delta","text":"Grüße"} }'.encode()
STRANGE = b'{"type":"weather","message":"rain"}'
PING = b'{"type": "ping"}'
STOP = b'{"type":"message_stop"}'
ANSWER = [START, PING, DELTA, STRANGE, STOP]
KEY = ("x-api-key", "sk-ant-secret")
HELLO = asking(user("Hello"))


def sse(*data: bytes) -> bytes:
    return b"".join(b"event: x\ndata: " + each + b"\n\n" for each in data)


@asynccontextmanager
async def talking(
    *answers: Answer,
    auth: tuple[str, str] | None = KEY,
    deadlines: Deadlines | None = None,
    **endpoint: Any,
) -> AsyncIterator[tuple[Loopback, Anthropic]]:
    """A server with these answers, and a model connected to it."""
    async with loopback(*answers) as server:
        model = Anthropic(ModelEndpoint(base_url=server.url, auth=auth, **endpoint), deadlines=deadlines)
        try:
            yield server, model
        finally:
            await model.close()


async def sent(request: ModelRequest, **endpoint: Any) -> tuple[Request, str]:
    """The request that is sent, and its address."""
    async with talking(stream(sse(*ANSWER)), **endpoint) as (server, model):
        await heard(model, request)
        return server.heard[0], server.url


async def failed(answer: Answer, **options: Any) -> dict[str, Any]:
    """The error for a response."""
    async with talking(answer, **options) as (server, model):
        error = await refusal(model, HELLO)
        return {**error, "message": error["message"].replace(server.url, "URL")}


def events(*data: bytes, request_id: str | None = None) -> list[ModelEvent]:
    """The expected events."""
    made = [read_event(each) for each in data]
    made[0].request_id = request_id
    return made


# Requests.


@pytest.mark.parametrize(
    ("auth", "more"),
    [
        (("x-api-key", "sk-1"), {"x-api-key": "sk-1"}),
        (("authorization", "Bearer t-1"), {"authorization": "Bearer t-1"}),
        (None, {}),
    ],
)
async def test_a_request_carries_the_key_in_its_header_and_nothing_else_of_ours(
    auth: tuple[str, str] | None, more: dict[str, str]
) -> None:
    request, url = await sent(HELLO, auth=auth)

    assert (request.line, request.headers) == (
        "POST /v1/messages HTTP/1.1",
        {
            "host": url.removeprefix("http://"),
            "connection": "keep-alive",
            "content-type": "application/json",
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            "anthropic-version": "2023-06-01",
            "user-agent": "parley",
            "content-length": str(len(request.body)),
            **more,
        },
    )


async def test_betas_go_into_one_header() -> None:
    request, _ = await sent(asking(user("Hello"), betas=("a-1", "b-2")))

    assert request.headers["anthropic-beta"] == "a-1,b-2"


async def test_custom_headers_are_sent_but_do_not_replace_the_key() -> None:
    custom = {"x-team": "red", "user-agent": "house", "x-api-key": "other"}
    request, _ = await sent(HELLO, headers=custom)

    assert {name: request.headers[name] for name in custom} == {
        "x-team": "red",
        "user-agent": "house",
        "x-api-key": "sk-ant-secret",
    }


async def test_a_small_request_has_only_the_fields_it_needs() -> None:
    request, _ = await sent(HELLO)

    assert request.body == (
        b'{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"Hello"}],"stream":true}'
    )


async def test_a_full_request_has_its_fields_in_a_fixed_order() -> None:
    full = asking(
        user("Hello"),
        system=[text("Be brief.")],
        tools=[{"name": "Read", "input_schema": {"type": "object"}}],
        thinking={"type": "adaptive"},
        effort="low",
        session_id="s1",
    )
    request, _ = await sent(full, extra_body={"top_k": 5, "stream": False})

    assert request.body == (
        b'{"model":"m","max_tokens":100,"system":[{"type":"text","text":"Be brief."}],'
        b'"tools":[{"name":"Read","input_schema":{"type":"object"}}],"thinking":{"type":"adaptive"},'
        b'"output_config":{"effort":"low"},"metadata":{"user_id":"s1"},"top_k":5,"stream":true,'
        b'"messages":[{"role":"user","content":"Hello"}]}'
    )


async def test_the_next_request_begins_with_the_bytes_of_the_last_one() -> None:
    said: list[Json] = [user([text("Hello")])]
    more = [*said, assistant(text("Hi.")), user([text("Bye")])]
    fields: dict[str, Any] = {"system": [text("Be brief.")], "tools": [{"name": "Read"}], "session_id": "s1"}

    async with talking(stream(sse(*ANSWER)), stream(sse(*ANSWER))) as (server, model):
        await heard(model, asking(*said, **fields))
        await heard(model, asking(*more, **fields))
        first, second = [request.body for request in server.heard]

    assert second.startswith(first.removesuffix(b'],"stream":true}'))


@pytest.mark.parametrize("path", ["", "/", "/proxy", "/proxy/"])
async def test_the_base_url_may_have_a_path(path: str) -> None:
    async with loopback(stream(sse(*ANSWER))) as server:
        model = Anthropic(ModelEndpoint(base_url=server.url + path, auth=None))
        await heard(model, HELLO)
        await model.close()
        result = server.heard[0].line

    assert result == f"POST {path.rstrip('/')}/v1/messages HTTP/1.1"


# Streams.


@pytest.mark.parametrize("size", [1, 2, 7, 64, 10_000])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
async def test_events_come_through_byte_for_byte_in_any_chunking(size: int, line_end: bytes) -> None:
    body = sse(*ANSWER).replace(b"\n", line_end)
    pieces = [body[at : at + size] for at in range(0, len(body), size)]

    async with talking(stream(*pieces)) as (_, model):
        result = await heard(model, HELLO)

    assert result == events(*ANSWER)


async def test_the_start_of_an_answer_carries_the_request_id() -> None:
    async with talking(stream(sse(*ANSWER), headers={"request-id": "req_7"})) as (_, model):
        result = await heard(model, HELLO)

    assert result == events(*ANSWER, request_id="req_7")


async def test_an_event_comes_out_before_the_next_one_is_sent() -> None:
    async with talking(silence(sse(START))) as (_, model), aclosing(model.stream(HELLO)) as answer:
        result = await anext(answer)

    assert result == read_event(START)


async def test_a_last_event_without_its_blank_line_counts() -> None:
    async with talking(until_close(sse(START) + b"data: " + STOP)) as (_, model):
        result = await heard(model, HELLO)

    assert result == events(START, STOP)


# Connections.


async def test_two_calls_share_a_connection() -> None:
    async with talking(stream(sse(*ANSWER)), stream(sse(*ANSWER))) as (server, model):
        await heard(model, HELLO)
        await heard(model, HELLO)
        result = server.connections

    assert result == 1


async def test_closing_the_model_closes_its_connection() -> None:
    async with talking(stream(sse(*ANSWER))) as (server, model):
        await heard(model, HELLO)
        await model.close()
        result = await server.ended.get()

    assert result == 1


async def test_a_closed_model_can_be_asked_again() -> None:
    async with talking(stream(sse(*ANSWER)), stream(sse(*ANSWER))) as (_, model):
        await heard(model, HELLO)
        await model.close()
        result = await heard(model, HELLO)

    assert result == events(*ANSWER)


async def test_closing_the_iterator_hangs_up() -> None:
    async with talking(silence(sse(START))) as (server, model):
        async with aclosing(model.stream(HELLO)) as answer:
            await anext(answer)
        result = await server.ended.get()

    assert result == 1


@pytest.mark.parametrize("answer", [silence(started=False), silence(), silence(sse(START))])
async def test_cancelling_the_wait_hangs_up(answer: Answer) -> None:
    async with talking(answer) as (server, model):
        waiting = asyncio.create_task(heard(model, HELLO))
        await server.asked.wait()
        waiting.cancel()
        await asyncio.wait({waiting})
        result = await server.ended.get()

    assert result == 1


async def test_a_call_after_an_abort_gets_a_connection_of_its_own() -> None:
    async with talking(silence(sse(START)), stream(sse(*ANSWER))) as (server, model):
        async with aclosing(model.stream(HELLO)) as answer:
            await anext(answer)
        result = await heard(model, HELLO), server.connections

    assert result == (events(*ANSWER), 2)


# Failures.


def error(kind: str, message: str) -> bytes:
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": message}})


RETRY = {"retryable": True}
LIMITED = {**RETRY, "retry_after_seconds": 7.0, "request_id": "req_9"}
PAGE = b"<html>bad gateway</html>"


@pytest.mark.parametrize(
    ("status", "body", "fields", "expected"),
    [
        (400, error("invalid_request_error", "no"), {}, problem("no", status=400, kind="invalid_request_error")),
        (401, error("authentication_error", "?"), {}, problem("?", status=401, kind="authentication_error", **RETRY)),
        (403, error("permission_error", "no"), {}, problem("no", status=403, kind="permission_error")),
        (404, error("not_found_error", "model: m"), {}, problem("model: m", status=404, kind="not_found_error")),
        (
            429,
            error("rate_limit_error", "slow"),
            {"retry-after": "7", "request-id": "req_9"},
            problem("slow", status=429, kind="rate_limit_error", **LIMITED),
        ),
        (500, error("api_error", "oh"), {}, problem("oh", status=500, kind="api_error", **RETRY)),
        (529, error("overloaded_error", "busy"), {}, problem("busy", status=529, kind="overloaded_error", **RETRY)),
        (599, b"", {}, problem("no details", status=599, kind="api_error", **RETRY)),
        (502, PAGE, {}, problem(PAGE.decode(), status=502, kind="api_error", **RETRY)),
        (503, b"\xff" * 300, {}, problem("\ufffd" * 200, status=503, kind="api_error", **RETRY)),
        (400, b"[1]", {}, problem("[1]", status=400, kind="api_error")),
        (400, b'{"error":"text"}', {}, problem('{"error":"text"}', status=400, kind="api_error")),
        (400, b'{"error":{"message":"m"}}', {}, problem("m", status=400, kind="api_error")),
        (204, b"", {}, problem("no details", status=204, kind="api_error")),
    ],
)
async def test_an_answer_other_than_200_is_an_error_with_the_apis_words(
    status: int, body: bytes, fields: Mapping[str, str], expected: dict[str, Any]
) -> None:
    assert {**await failed(whole(status, body, fields)), "advice": ""} == expected


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("0", 0.0), ("1.5", 1.5), ("-3", 0.0), ("soon", None), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("", None)],
)
async def test_retry_after_counts_in_seconds(header: str, seconds: float | None) -> None:
    assert await failed(whole(429, b"", {"retry-after": header})) == problem(
        "no details", status=429, kind="api_error", retryable=True, retry_after_seconds=seconds
    )


async def test_a_redirect_is_not_followed_and_the_key_stays_here() -> None:
    async with loopback() as elsewhere:
        there = {"location": f"{elsewhere.url}/v1/messages"}
        result = await failed(whole(307, b"", there)), elsewhere.heard

    assert result == (problem("the API answered with a redirect, and redirects are not followed", status=307), [])


async def test_a_refused_connection_on_this_machine_is_named_and_tried_again_twice() -> None:
    port = free_port()
    endpoint = ModelEndpoint(base_url=f"http://me:hush@127.0.0.1:{port}", auth=KEY)

    text = f"connection refused by http://127.0.0.1:{port}: nothing listens there"
    expected = problem(text, kind="connection_failed", retryable=True)
    assert await refusal(Anthropic(endpoint), HELLO) == {**expected, "max_retries": 2}


async def test_no_proxy_stands_before_a_server_on_this_machine() -> None:
    environment = {"ALL_PROXY": "socks5://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}

    async with loopback(stream(sse(*ANSWER))) as server:
        model = Anthropic(ModelEndpoint(base_url=server.url, auth=KEY), environment=environment)
        result = await heard(model, HELLO)
        await model.close()

    assert result[-1].type == "message_stop"


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "ftp://127.0.0.1:9", "http://me:secret@127.0.0.1:port"])
async def test_a_proxy_that_cannot_be_used_is_an_error_that_is_not_retried(proxy: str) -> None:
    endpoint = ModelEndpoint(base_url="http://192.0.2.1", auth=KEY)

    assert await refusal(Anthropic(endpoint, environment={"ALL_PROXY": proxy}), HELLO) == problem(
        BAD_PROXY, kind="proxy"
    )


@pytest.mark.parametrize(
    ("url", "is_it"),
    [
        ("http://localhost:8080", True),
        ("https://127.0.0.2/v1", True),
        ("http://[::1]:80", True),
        ("http://me:127.0.0.1@example.com", False),
        ("http://127.0.0.1.example.com", False),
        ("http://[broken", False),
        ("https://api.anthropic.com", False),
    ],
)
def test_loopback_is_recognised_by_the_host(url: str, is_it: bool) -> None:
    assert is_loopback(url) is is_it


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
async def test_a_server_with_a_strange_certificate_does_not_get_the_key(tmp_path: Path, scheme: str) -> None:
    async with loopback(stream(sse(*ANSWER)), tls=self_signed(tmp_path, "IP:127.0.0.1")) as server:
        model = Anthropic(ModelEndpoint(base_url=server.url.replace("http", scheme), auth=KEY))
        error = await refusal(model, HELLO)
        await model.close()
        message, requests = error["message"], server.heard

    assert "certificate verify failed" in message
    assert requests == []


async def until_it_fails(answer: Answer) -> tuple[list[ModelEvent], dict[str, Any]]:
    """The events before the error, and the error."""
    came: list[ModelEvent] = []
    async with talking(answer) as (server, model):
        try:
            async for event in model.stream(HELLO):
                came.append(event)  # noqa: PERF401  # what came must be known when the error comes
        except ModelError as exc:
            return came, {**vars(exc), "message": exc.message.replace(server.url, "URL")}
    raise AssertionError("the model answered")


async def test_a_stream_that_is_cut_off_is_an_error_after_its_events() -> None:
    assert await until_it_fails(cut_off(sse(START, DELTA))) == (
        events(START, DELTA),
        problem(
            "no answer from URL: the server closed the connection before the answer was complete",
            kind="connection_failed",
            retryable=True,
        ),
    )


async def test_half_an_event_at_the_end_is_an_error_after_the_whole_ones() -> None:
    assert await until_it_fails(until_close(sse(START) + b'data: {"type":"message_st')) == (
        events(START),
        problem("the model sent an invalid event: Input data was truncated", retryable=True),
    )


async def test_an_error_event_is_an_error_after_the_events_before_it() -> None:
    assert await until_it_fails(stream(sse(START, error("overloaded_error", "Overloaded"), STOP))) == (
        events(START),
        problem("Overloaded", kind="overloaded_error", retryable=True),
    )


async def test_an_error_event_without_details_is_an_error_too() -> None:
    assert await failed(stream(sse(b'{"type":"error"}'))) == problem(
        "the model's stream ended early", kind="api_error", retryable=True
    )


LATE = "the model did not answer in time: URL "


@pytest.mark.parametrize("deadline", ["first_byte_seconds", "request_seconds"])
async def test_a_backend_that_sends_no_headers_says_how_long_they_were_awaited(deadline: str) -> None:
    found = await failed(silence(started=False), deadlines=Deadlines(**{deadline: 0.05}))

    late = problem(LATE + "sent nothing for 0.05 s", kind="timeout_error", retryable=True)
    assert found == {**late, "waited_seconds": 0.05, "max_retries": 1}


@pytest.mark.parametrize(
    ("answer", "deadlines"),
    [
        (silence(), Deadlines(silence_seconds=0.05)),
        (silence(sse(START)), Deadlines(silence_seconds=0.05)),
        (silence(sse(START)), Deadlines(request_seconds=0.05)),
        (endless(sse(PING)), Deadlines(request_seconds=0.05)),
        (endless(sse(PING)), Deadlines(content_seconds=0.05)),
    ],
)
async def test_a_backend_that_does_not_continue_hits_its_deadline(answer: Answer, deadlines: Deadlines) -> None:
    found = await failed(answer, deadlines=deadlines)

    # The deadline of the whole request may pass before the headers arrive.
    assert found["message"] in (LATE + "stopped in the middle of its response", LATE + "sent nothing for 0.05 s")
    assert (found["kind"], found["retryable"]) == ("timeout_error", True)


@pytest.mark.parametrize("key", ["sk-ant\nx: y", "sk-änt", "sk\x00"])
async def test_a_key_that_no_header_can_carry_is_an_error_that_does_not_show_it(key: str) -> None:
    assert await failed(stream(sse(*ANSWER)), auth=("x-api-key", key)) == problem(
        "cannot send the request: a header has an invalid value"
    )


async def test_a_url_that_is_invalid_is_an_error() -> None:
    endpoint = ModelEndpoint(base_url="http://\x7f", auth=KEY)

    assert (await refusal(Anthropic(endpoint), HELLO))["kind"] == "connection_failed"


def test_an_endpoint_shows_neither_its_key_nor_its_password() -> None:
    endpoint = ModelEndpoint(base_url="https://me:hush@api.test/v1", auth=KEY, headers={"x-secret": "hush"})

    assert repr(endpoint) == "ModelEndpoint(https://api.test/v1)"


def test_headers_without_a_key_have_none() -> None:
    endpoint = ModelEndpoint(base_url="", auth=None)

    assert Anthropic(endpoint).build_headers(HELLO, endpoint) == {
        "content-type": "application/json",
        "accept": "text/event-stream",
        "accept-encoding": "identity",
        "anthropic-version": "2023-06-01",
        "user-agent": "parley",
    }


# Fields that compatible servers may not support.

MARKED = [{**text("Be brief."), "cache_control": {"type": "ephemeral"}}]
RICH = asking(user("Hello"), system=MARKED, thinking={"type": "adaptive"}, effort="low", betas=("a-1", "b-2"))


@pytest.mark.parametrize(
    ("words", "name", "changed"),
    [
        ("output_config: Extra inputs are not permitted", "output_config", {"output_config": None}),
        ("thinking.type: Extra inputs are not permitted", "thinking", {"thinking": None}),
        ("system.0.cache_control: Extra inputs are not permitted", "cache_control", {"system": [text("Be brief.")]}),
        ("Unexpected value(s) `b-2` for the `anthropic-beta` header", "b-2", {"anthropic-beta": "a-1"}),
        ("the header anthropic-beta is not supported", "anthropic-beta", {"anthropic-beta": None}),
    ],
)
async def test_what_the_server_does_not_know_is_left_out_from_then_on(words: str, name: str, changed: Json) -> None:
    warnings: list[str] = []

    refused = whole(400, error("invalid_request_error", words))
    async with loopback(refused, stream(sse(*ANSWER)), stream(sse(*ANSWER))) as server:
        model = Anthropic(ModelEndpoint(base_url=server.url, auth=KEY), warn=warnings.append)
        await heard(model, RICH)
        await heard(model, RICH)
        await model.close()
        first, second, third = [
            {**msgspec.json.decode(each.body), "anthropic-beta": each.headers.get("anthropic-beta")}
            for each in server.heard
        ]

    expected = {**first, **changed}
    assert second == third == {key: value for key, value in expected.items() if value or key == "anthropic-beta"}
    assert warnings == [f"warning: the model's server rejected the field {name!r} ({words}); it is not sent again"]


async def test_a_bad_request_that_names_no_optional_field_is_not_sent_again() -> None:
    words = "messages.0.content: Extra inputs are not permitted"

    assert await failed(whole(400, error("invalid_request_error", words))) == problem(
        words, status=400, kind="invalid_request_error"
    )


async def test_a_stream_that_is_compressed_all_the_same_is_read() -> None:
    async def scenario() -> list[ModelEvent]:
        zipped = whole(200, gzip.compress(sse(*ANSWER)), {"content-encoding": "gzip"})
        async with talking(zipped) as (_, model):
            return await heard(model, HELLO)

    assert [event.raw for event in await scenario()] == ANSWER


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (500, problem("no details", status=500, kind="api_error", retryable=True)),
        (400, problem("no details", status=400, kind="api_error")),
    ],
)
async def test_a_refusal_that_cannot_be_decompressed_keeps_its_status(status: int, expected: dict[str, Any]) -> None:
    assert await failed(whole(status, b"no gzip", {"content-encoding": "gzip"})) == expected


async def test_a_stream_that_cannot_be_decompressed_is_a_broken_one() -> None:
    told = await failed(whole(200, b"no gzip", {"content-encoding": "gzip"}))

    assert (told["kind"], told["retryable"]) == ("connection_failed", True)


async def test_a_key_that_the_server_repeats_is_not_shown() -> None:
    told = await failed(whole(401, error("authentication_error", "bad key sk-ant-secret!")))

    assert told["message"] == "bad key [redacted]!"


async def test_a_message_in_one_piece_is_read_as_its_stream() -> None:
    message: Json = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "text", "text": "Yes."},
            {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "a"}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 7, "output_tokens": 3},
    }
    async with talking(whole(200, msgspec.json.encode(message), {"request-id": "r1"})) as (_, model):
        came = await heard(model, HELLO)
    accumulator = MessageAccumulator()
    for event in came:
        accumulator.feed(event)

    assert [block.json for block in accumulator.blocks] == message["content"]
    assert (accumulator.id, accumulator.model, accumulator.request_id) == ("msg_1", "m", "r1")
    assert (accumulator.finished, accumulator.stop_reason) == (True, "tool_use")
    assert accumulator.final_usage == message["usage"]


async def test_a_message_in_one_piece_may_lack_what_nobody_counts() -> None:
    body = b'{"type":"message","content":[{"type":"text","text":"Hi"}],"stop_reason":null,"usage":null}'
    async with talking(whole(200, body)) as (_, model):
        came = await heard(model, HELLO)

    assert [event.delta.stop_reason for event in came if event.type == "message_delta" and event.delta] == ["end_turn"]
    assert came[-1].type == "message_stop"


@pytest.mark.parametrize("content", [b'"Hi"', b"7", b"[7]", b"null"])
async def test_a_message_in_one_piece_without_blocks_is_an_error(content: bytes) -> None:
    told = await failed(whole(200, b'{"type":"message","content":%b}' % content))

    assert "the model sent an invalid message" in told["message"]


@pytest.mark.parametrize(
    "words",
    [
        "[{'type': 'string_type', 'loc': ('body', 'messages', 2, 'content'), 'msg': 'Input should be a string'}]",
        "2 validation errors for ChatRequest",
    ],
)
async def test_a_request_that_cannot_be_validated_is_not_sent_again_under_the_status_500(words: str) -> None:
    told = await failed(whole(500, msgspec.json.encode({"error": {"message": words}})))

    assert (told["status"], told["retryable"]) == (500, False)


async def test_an_answer_that_is_complete_does_not_wait_for_a_connection_that_stays_open() -> None:
    events, told = await until_it_fails(silence(sse(*ANSWER)))

    assert [event.raw for event in events] == ANSWER
    assert told["kind"] == "timeout_error"
