"""Faults over real sockets, as clients of all APIs see them."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any
from urllib.parse import urlsplit

import pytest

from parley.models.faults import FaultPlan
from parley.models.script import Script, ScriptedCall, ScriptedTurn
from parley.testing.model_server import ModelServer, running
from tests.helpers.patience import PATIENCE_SECONDS

ANSWER = ScriptedTurn(text="Hello there.", tools=[ScriptedCall(name="Read", input={"path": "x" * 50})], chunk_chars=8)
SCRIPT = Script(turn=[ANSWER], at_end="repeat")
PATHS = {"messages": "/v1/messages", "chat": "/v1/chat/completions", "responses": "/v1/responses"}
BODY = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "input": "Hi"}
SILENCE_SECONDS = 0.3
MOST_EVENTS = {"responses": 2}
"""How many events of an API one event of the Messages API is."""


class Heard:
    """The bytes received until the connection ended, `until` came, or it was silent after so many events."""

    def __init__(
        self,
        server: ModelServer,
        path: str,
        *,
        stream: bool = True,
        until: bytes = b"0\r\n\r\n",
        silent_after: int | None = None,
    ) -> None:
        self.data, self.reset, self.silent = b"", False, False
        address = urlsplit(server.url)
        content = json.dumps({**BODY, "stream": stream}).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(content)}\r\n\r\n"
        with socket.create_connection((address.hostname or "", address.port or 0), timeout=PATIENCE_SECONDS) as line:
            line.sendall(head.encode() + content)
            try:
                # The server keeps connections open, so the last chunk is the end of an answer.
                while until not in self.data:
                    if silent_after is not None and self.events >= silent_after:
                        line.settimeout(SILENCE_SECONDS)
                    if not (more := line.recv(65_536)):
                        break
                    self.data += more
            except ConnectionResetError:
                self.reset = True
            except TimeoutError:
                self.silent = True
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    @property
    def events(self) -> int:
        return self.data.count(b"data: ")


def heard(fault: str, api: str = "messages", **how: Any) -> Heard:
    with running(SCRIPT, plan=FaultPlan.read([fault], "here")) as server:
        return Heard(server, PATHS[api], **how)


@pytest.mark.parametrize("api", PATHS)
def test_a_reset_is_a_tcp_reset_after_what_was_sent(api: str) -> None:
    broken = heard("reset=4", api)

    assert broken.reset
    assert 0 < broken.events <= 4 * MOST_EVENTS.get(api, 1)
    assert b"HTTP/1.1 200" in broken.data


@pytest.mark.parametrize("api", PATHS)
def test_a_reset_before_the_first_event_sends_no_byte(api: str) -> None:
    assert (heard("reset=0", api).reset, heard("reset=0", api).data) == (True, b"")


def test_a_reset_at_a_byte_is_at_that_byte() -> None:
    broken = heard("reset-bytes=30")
    sizes_and_text = broken.data.partition(b"\r\n\r\n")[2]

    assert broken.reset
    assert sizes_and_text == b'1e\r\nevent: message_start\ndata: {"t'[:4] + sizes_and_text[4:34] + b"\r\n"
    assert len(sizes_and_text) == len(b"1e\r\n") + 30 + len(b"\r\n")


@pytest.mark.parametrize(("fault", "events"), [("stall-first-byte", 0), ("stall=3", 3)])
def test_a_stall_leaves_the_line_open_and_silent(fault: str, events: int) -> None:
    stalled = heard(fault, silent_after=events)

    assert (stalled.silent, stalled.reset, stalled.events) == (True, False, events)
    assert (stalled.data == b"") == (events == 0)


@pytest.mark.parametrize(
    ("api", "ping"), [("messages", b'data: {"type":"ping"}'), ("chat", b": ping"), ("responses", b": ping")]
)
def test_pings_drip(api: str, ping: bytes) -> None:
    dripping = heard("pings=0.01", api, until=ping + b"\n\n")

    assert dripping.data.count(ping) > 0
    assert not dripping.reset
    assert not dripping.silent


@pytest.mark.parametrize("api", PATHS)
def test_a_truncated_stream_ends_well_in_the_midst_of_an_event(api: str) -> None:
    cut = heard("truncated=3", api)

    assert cut.data.endswith(b"\r\n0\r\n\r\n")
    assert not cut.data.endswith(b"\n\n\r\n0\r\n\r\n")
    assert b"message_stop" not in cut.data
    assert b"[DONE]" not in cut.data
    assert b"response.completed" not in cut.data


@pytest.mark.parametrize("api", PATHS)
def test_a_malformed_event_is_not_json(api: str) -> None:
    assert b'"text_del\n\n' in heard("malformed=3", api).data


@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize(
    ("fault", "status", "wait"),
    [("rate-limit", 429, False), ("rate-limit-wait=7", 429, True), ("overloaded", 529, False)],
)
def test_a_refusal_is_a_status(api: str, fault: str, status: int, wait: bool) -> None:
    with running(SCRIPT, plan=FaultPlan.read([fault], "here")) as server:
        refused = Heard(server, PATHS[api], until=b"}}")

    assert refused.data.startswith(f"HTTP/1.1 {status} ".encode())
    assert (b"retry-after: 7" in refused.data) == wait
    assert b'"error"' in refused.data


def test_half_a_tool_call_is_all_that_comes_of_it() -> None:
    broken = heard("half-tool-call")

    assert broken.reset
    assert broken.data.count(b"input_json_delta") == 1


def test_an_answer_in_one_piece_can_be_spoiled_too() -> None:
    whole, reset, cut = (heard(fault, stream=False) for fault in ("stall-first-byte=0", "reset=3", "truncated"))

    assert b'"stop_reason":"tool_use"' in whole.data
    assert (reset.reset, reset.data) == (True, b"")
    assert b'"service_tier"' in whole.data
    assert b'"service_tier"' not in cut.data
    assert cut.data.endswith(b"0\r\n\r\n")


def test_a_fault_in_a_script_strikes_its_turn_alone() -> None:
    script = Script(turn=[ScriptedTurn(text="a", fault="reset=0"), ScriptedTurn(text="b")])
    with running(script) as server:
        first, second = Heard(server, "/v1/messages"), Heard(server, "/v1/messages")

    assert (first.reset, second.reset, b'"text":"b"' in second.data) == (True, False, True)


def test_a_refused_request_uses_up_no_turn() -> None:
    script = Script(turn=[ScriptedTurn(text="a"), ScriptedTurn(text="b")])
    with running(script, plan=FaultPlan.read(["overloaded"], "here")) as server:
        Heard(server, "/v1/messages", until=b"Overloaded")
        heard_next = Heard(server, "/v1/messages")

    assert b'"text":"a"' in heard_next.data
