"""The server side of MCP: cancelling, limits, and the end of the client."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from parley.mcp.tool_server import MAX_CALLS, ToolServer
from parley.protocol.base import Json
from parley.protocol.framing import OverlongLine

TOOLS = [{"name": "wait", "inputSchema": {"type": "object"}}, {"name": "fail", "inputSchema": {"type": "object"}}]


class Client:
    """Joins a server to a list of the lines it sends."""

    def __init__(self) -> None:
        self.sent: list[Json] = []
        self.started = 0
        self.cancelled = 0
        self.go_on = asyncio.Event()
        self.server = ToolServer(TOOLS, self._call, lambda data: self.sent.append(json.loads(data)))

    async def _call(self, name: str, arguments: Json) -> Json:
        if name == "fail":
            raise RuntimeError("broken \ud800")
        self.started += 1
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return {"content": [], "isError": False}

    def say(self, method: str, id: Any = None, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params, **({} if id is None else {"id": id})}
        self.server.receive(json.dumps(message).encode())

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_a_cancelled_call_stops_and_is_not_answered() -> None:
    client = Client()
    client.say("tools/call", 1, name="wait")
    client.say("tools/call", 2, name="wait", arguments={})
    await client.settle()

    client.say("notifications/cancelled", requestId=1)
    await client.settle()
    client.go_on.set()
    await client.settle()

    assert (client.started, client.cancelled) == (2, 1)
    assert [line["id"] for line in client.sent] == [2]


async def test_the_end_of_the_client_cancels_what_runs() -> None:
    client = Client()
    client.say("tools/call", 1, name="wait")
    await client.settle()

    await client.server.close()

    assert (client.cancelled, client.sent) == (1, [])


async def test_an_id_in_use_and_too_many_calls_are_refused() -> None:
    client = Client()
    for number in range(MAX_CALLS):
        client.say("tools/call", number, name="wait")
    client.say("tools/call", 0, name="wait")
    client.say("tools/call", "more", name="wait")

    assert [line["error"]["message"] for line in client.sent] == [
        "a call with the id 0 is running already",
        f"{MAX_CALLS} calls are running already",
    ]
    await client.server.close()


async def test_a_tool_that_raises_is_an_error_of_its_call() -> None:
    client = Client()
    client.say("tools/call", 1, name="fail")
    await client.settle()
    client.say("ping", 2)

    assert client.sent == [
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "RuntimeError: broken \\ud800"}},
        {"jsonrpc": "2.0", "id": 2, "result": {}},
    ]


def test_the_version_that_the_client_asks_for_is_used_if_it_is_known() -> None:
    sent: list[Json] = []

    async def never(name: str, arguments: Json) -> Json:
        raise AssertionError

    server = ToolServer(TOOLS, never, lambda data: sent.append(json.loads(data)))
    for version in ("2025-03-26", "1999-01-01"):
        request = {"jsonrpc": "2.0", "id": version, "method": "initialize", "params": {"protocolVersion": version}}
        server.receive(json.dumps(request).encode())
    server.receive(OverlongLine(10))

    assert [line["result"]["protocolVersion"] for line in sent[:2]] == ["2025-03-26", "2025-11-25"]
    assert sent[2]["error"]["message"] == "a line is longer than 10 bytes"


META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def test_a_request_that_names_its_revision_needs_no_handshake() -> None:
    client = Client()
    client.go_on.set()
    client.say("server/discover", 1, _meta=META)
    client.say("tools/list", 2, _meta=META)
    client.say("tools/call", 3, _meta=META, name="wait")
    await client.settle()

    discovered, listed, called = (line["result"] for line in client.sent)
    assert discovered["supportedVersions"] == ["2026-07-28"]
    assert listed["tools"] == TOOLS
    assert called["content"] == []
    for result in (discovered, listed, called):
        assert result["resultType"] == "complete"
        assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "parley"
    assert [("ttlMs" in result, result.get("cacheScope")) for result in (discovered, listed, called)] == [
        (True, "private"),
        (True, "private"),
        (False, None),
    ]


def test_what_a_revision_does_not_have_is_refused() -> None:
    client = Client()
    client.say("server/discover", "without _meta")
    client.say("initialize", "removed", _meta=META)
    client.say("ping", "removed", _meta=META)
    client.say("tools/list", "later", _meta={**META, "io.modelcontextprotocol/protocolVersion": "2027-01-01"})
    client.say("tools/list", "type", _meta={**META, "io.modelcontextprotocol/protocolVersion": 3})
    client.say("tools/list", "no capabilities", _meta={"io.modelcontextprotocol/protocolVersion": "2026-07-28"})

    assert [line["error"]["code"] for line in client.sent] == [-32601, -32601, -32601, -32022, -32602, -32602]
    assert client.sent[3]["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2027-01-01"}
