"""JSON-RPC connections: two ends in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from parley import jsonrpc
from parley.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, Method, RpcConnection, RpcError
from parley.protocol.base import Json


class Ends:
    """A connection, what it wrote, and another one that answers it."""

    def __init__(self) -> None:
        self.written: list[Json] = []
        self.ours = RpcConnection(self._write)
        self.theirs = RpcConnection(self.ours.receive)

    def _write(self, line: bytes) -> None:
        self.written.append(msgspec.json.decode(line))
        self.theirs.receive(line)


async def echo(params: Json) -> Json:
    return params


async def test_a_request_gets_the_result_of_its_handler() -> None:
    ends = Ends()
    ends.theirs.methods = {"echo": Method(dict[str, Any], echo)}

    assert await ends.ours.request("echo", {"a": 1}) == {"a": 1}
    with pytest.raises(RpcError, match="unknown method 'other'"):
        await ends.ours.request("other", {})


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        ({"code": -1, "message": "no"}, -1, "no"),
        ({}, None, "the server returned an error without a message"),
        ("no", None, "the server returned an error without a message"),
    ],
)
async def test_an_error_is_raised_whatever_it_looks_like(error: Any, code: Any, text: str) -> None:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    jsonrpc.settle(answer, {}, error)

    with pytest.raises(RpcError) as raised:
        await answer
    assert (raised.value.code, str(raised.value)) == (code, text)
    assert jsonrpc.make_error(1, raised.value)["error"]["code"] == (INTERNAL_ERROR if code is None else code)


async def test_a_request_that_is_cancelled_is_cancelled_at_the_other_end() -> None:
    ends, started, cancelled = Ends(), asyncio.Event(), asyncio.Event()

    async def wait(params: Json) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    ends.theirs.methods = {"wait": Method(dict[str, Any], wait)}
    request = asyncio.create_task(ends.ours.request("wait", {}))
    await started.wait()
    request.cancel()
    await cancelled.wait()

    assert [message["method"] for message in ends.written] == ["wait", "$/cancel_request"]


async def test_a_notification_gets_no_response_even_if_it_is_refused() -> None:
    ends = Ends()
    refusal = RpcError(INVALID_REQUEST, "slow down")

    ends.ours.receive(b'{"jsonrpc": "2.0", "method": "session/cancel", "params": {}}', refusal)
    ends.ours.receive(b'{"jsonrpc": "2.0", "id": 1, "method": "session/cancel", "params": {}}', refusal)

    assert ends.written == [jsonrpc.make_error(1, refusal)]


async def test_requests_that_wait_fail_when_the_peer_is_gone() -> None:
    ends, started = Ends(), asyncio.Event()

    async def wait(params: Json) -> None:
        started.set()
        await asyncio.Event().wait()

    ends.theirs.methods = {"wait": Method(dict[str, Any], wait)}
    request = asyncio.create_task(ends.ours.request("wait", {}))
    await started.wait()
    await ends.ours.close()
    await ends.theirs.close()

    with pytest.raises(ConnectionError):
        await request
