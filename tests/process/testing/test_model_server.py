"""The scripted Messages API over real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse, RemoteDisconnected
from typing import Any
from urllib.parse import urlsplit

import pytest

from parley.errors import ModelError
from parley.models.backends.anthropic import Anthropic
from parley.models.base import ModelEvent, ModelRequest
from parley.models.endpoint import ModelEndpoint
from parley.models.http.response import EventReader
from parley.models.script import Script, ScriptedError, ScriptedTurn, read_script
from parley.testing.model_server import ModelServer, running

HELLO = Script(turn=[ScriptedTurn(text="Hello there.", usage={"input_tokens": 7, "output_tokens": 3})])
PROMPT = {"model": "claude-test", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}
STREAMED = {**PROMPT, "stream": True}
FINISHED = {
    "type": "message",
    "role": "assistant",
    "model": "claude-test",
    "content": [{"type": "text", "text": "Hello there."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 7,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 3,
        "service_tier": "standard",
    },
}


@contextmanager
def connected(server: ModelServer) -> Iterator[HTTPConnection]:
    connection = HTTPConnection(urlsplit(server.url).netloc, timeout=60)
    try:
        yield connection
    finally:
        connection.close()


def post(
    connection: HTTPConnection, body: object, path: str = "/v1/messages", headers: dict[str, str] | None = None
) -> HTTPResponse:
    connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body), headers or {})
    return connection.getresponse()


def read_json(response: HTTPResponse) -> Any:
    assert response.headers["content-type"] == "application/json"
    return json.loads(response.read())


def events(response: HTTPResponse) -> list[Any]:
    assert response.headers["content-type"] == "text/event-stream"
    reader = EventReader()
    return [json.loads(data) for data in [*reader.feed(response.read()), *reader.end()]]


def test_a_streamed_answer_is_the_events_of_its_turn() -> None:
    with running(HELLO) as server, connected(server) as connection:
        start, *middle, end, stop = events(post(connection, STREAMED))

    assert start["message"]["content"] == []
    assert middle == [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello there."}},
        {"type": "content_block_stop", "index": 0},
    ]
    assert end["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert end["usage"]["output_tokens"] == 3
    assert stop == {"type": "message_stop"}


def test_an_answer_that_is_not_streamed_is_the_whole_message() -> None:
    with running(HELLO) as server, connected(server) as connection:
        message = read_json(post(connection, PROMPT))

    assert message.pop("id").startswith("msg_")
    assert message == FINISHED


async def test_our_own_adapter_reads_what_is_served() -> None:
    script = Script(turn=[ScriptedTurn(thinking="Hm.", text="Yes.")])
    request = ModelRequest(model="claude-test", system=[], messages=[{"role": "user", "content": "?"}], max_tokens=9)

    async def heard() -> list[ModelEvent]:
        async with asyncio.timeout(60), ModelServer(script) as server:
            model = Anthropic(ModelEndpoint(base_url=server.url, auth=("x-api-key", "a-key")))
            try:
                return [event async for event in model.stream(request)]
            finally:
                await model.close()

    told = await heard()

    assert [event.delta.thinking or event.delta.text for event in told if event.delta and event.index < 2] == [
        "Hm.", "", "Yes.", "",
    ]  # fmt: skip
    assert told[0].request_id is not None
    assert told[0].request_id.startswith("req_")


def test_turns_are_served_in_order_and_a_cue_comes_first() -> None:
    script = read_script('[[turn]]\ntext="one"\n[[turn]]\ntext="cued"\nwhen="now"\n[[turn]]\ntext="two"', "script")
    now = {**PROMPT, "messages": [{"role": "user", "content": "say it now"}]}
    with running(script) as server, connected(server) as connection:
        said = [read_json(post(connection, body))["content"][0]["text"] for body in (PROMPT, now, PROMPT)]

    assert said == ["one", "cued", "two"]


def test_one_connection_carries_many_exchanges() -> None:
    script = Script(turn=HELLO.turn, at_end="repeat")
    with running(script) as server, connected(server) as connection:
        events(post(connection, STREAMED))
        first_socket = connection.sock
        read_json(post(connection, PROMPT))
        events(post(connection, STREAMED))

        assert connection.sock is first_socket
    assert [(exchange.status, exchange.complete) for exchange in server.exchanges] == [(200, True)] * 3


@pytest.mark.parametrize("body", [PROMPT, STREAMED], ids=["whole", "streamed"])
def test_a_scripted_error_is_an_http_status_with_the_body_of_the_api(body: object) -> None:
    fault = ScriptedError(status=529, type="overloaded_error", message="busy", retry_after_seconds=1.5)
    with running(Script(turn=[ScriptedTurn(error=fault), *HELLO.turn])) as server, connected(server) as connection:
        response = post(connection, body)

        assert (response.status, response.headers["retry-after"]) == (529, "1.5")
        assert read_json(response) == {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
        assert post(connection, PROMPT).status == 200


def test_an_error_without_a_retry_time_has_no_such_header() -> None:
    fault = ScriptedError(status=401, type="authentication_error", message="invalid x-api-key")
    with running(Script(turn=[ScriptedTurn(error=fault)])) as server, connected(server) as connection:
        response = post(connection, PROMPT)

    assert (response.status, response.reason, response.headers["retry-after"]) == (401, "Unauthorized", None)


def test_an_error_without_a_status_breaks_the_line() -> None:
    script = Script(turn=[ScriptedTurn(error=ScriptedError())])
    with running(script) as server, connected(server) as connection, pytest.raises(RemoteDisconnected):
        post(connection, STREAMED)

    assert [(exchange.status, exchange.complete) for exchange in server.exchanges] == [(None, False)]


def test_a_call_after_the_last_turn_fails_and_is_not_retried() -> None:
    with running(Script()) as server, connected(server) as connection:
        response = post(connection, STREAMED)

        error = {"type": "invalid_request_error", "message": "the script has no turns left"}
        assert (response.status, read_json(response)) == (400, {"type": "error", "error": error})


def test_tokens_are_counted_without_using_up_a_turn() -> None:
    with running(HELLO) as server, connected(server) as connection:
        counted = read_json(post(connection, PROMPT, "/v1/messages/count_tokens?beta=true"))

        assert counted == {"input_tokens": len(json.dumps(PROMPT)) // 4}
        assert post(connection, PROMPT).status == 200


def test_a_request_is_kept_without_its_keys() -> None:
    headers = {"X-Api-Key": "sk-secret", "Authorization": "Bearer secret", "anthropic-version": "2023-06-01"}
    with running(HELLO) as server, connected(server) as connection:
        post(connection, PROMPT, "/v1/messages?beta=true", headers).read()

    (kept,) = server.exchanges
    assert (kept.method, kept.path, kept.body) == ("POST", "/v1/messages", PROMPT)
    assert {name: kept.headers[name.lower()] for name in headers} == {
        "X-Api-Key": "(redacted)",
        "Authorization": "(redacted)",
        "anthropic-version": "2023-06-01",
    }
    assert "secret" not in repr(server.exchanges)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"messages": []}',
        b'{"model": 1, "messages": []}',
        b'"\xff"',
        b'{"model": "m", "messages": [{"role": "user", "content": 5}]}',
        b'{"model": "m", "messages": [{"role": "user", "content": [null]}]}',
        b'{"model": "m", "messages": [{"content": "Hi"}]}',
        b'{"model": "m", "messages": [], "system": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_a_body_that_is_not_a_request_is_refused(body: bytes) -> None:
    with running(HELLO) as server, connected(server) as connection:
        response = post(connection, body)

        assert response.status == 400
        assert read_json(response)["error"]["type"] == "invalid_request_error"
        assert post(connection, PROMPT).status == 200


def test_what_is_not_the_messages_api_is_not_found() -> None:
    with running(HELLO) as server, connected(server) as connection:
        assert post(connection, PROMPT, "/v1/complete").status == 404
    with running(HELLO) as server, connected(server) as connection:
        connection.request("GET", "/v1/messages")
        assert connection.getresponse().status == 404


@pytest.mark.parametrize("head", [b"transfer-encoding: chunked", b"content-length: -1", b"content-length: ten"])
def test_a_body_without_a_length_is_refused(head: bytes) -> None:
    with running(HELLO) as server:
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname or "", address.port or 0), timeout=60) as line:
            line.sendall(b"POST /v1/messages HTTP/1.1\r\n" + head + b"\r\n\r\n")
            answer = b"".join(iter(lambda: line.recv(4096), b""))

    assert answer.startswith(b"HTTP/1.1 411 ")


def test_an_answer_that_is_slow_does_not_hold_up_another() -> None:
    slow = ScriptedTurn(text="late", when="slow", delay_ms=60_000)
    script = Script(turn=[slow, *HELLO.turn])
    with running(script) as server, connected(server) as waiting, connected(server) as other:
        messages = [{"role": "user", "content": "slow"}]
        waiting.request("POST", "/v1/messages", json.dumps({**PROMPT, "messages": messages}))
        assert read_json(post(other, PROMPT))["content"] == FINISHED["content"]


def test_closing_the_server_ends_an_answer_on_its_way() -> None:
    endless = ScriptedTurn(text="word " * 1000, chunk_chars=1, event_delay_ms=10)
    with running(Script(turn=[endless])) as server, connected(server) as connection:
        response = post(connection, STREAMED)
        assert response.status == 200

    assert [(exchange.status, exchange.complete) for exchange in server.exchanges] == [(200, False)]


def test_a_client_that_hangs_up_leaves_its_answer_incomplete() -> None:
    endless = ScriptedTurn(text="word " * 1000, chunk_chars=1, event_delay_ms=1)
    with running(Script(turn=[endless, *HELLO.turn])) as server:
        with connected(server) as connection:
            response = post(connection, STREAMED)
            response.read(10)
            response.close()
        with connected(server) as connection:
            assert post(connection, PROMPT).status == 200

    assert [exchange.complete for exchange in server.exchanges] == [False, True]


async def test_a_broken_line_reaches_our_adapter_as_an_error_that_may_pass() -> None:
    request = ModelRequest(model="claude-test", system=[], messages=[], max_tokens=9)

    async def failure() -> ModelError:
        async with asyncio.timeout(60), ModelServer(Script(turn=[ScriptedTurn(error=ScriptedError())])) as server:
            model = Anthropic(ModelEndpoint(base_url=server.url, auth=None))
            try:
                with pytest.raises(ModelError) as raised:
                    [event async for event in model.stream(request)]
                return raised.value
            finally:
                await model.close()

    problem = await failure()
    assert (problem.kind, problem.retryable) == ("connection_failed", True)
