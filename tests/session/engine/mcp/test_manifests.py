"""A client that has performed the handshakes of its servers in advance is not asked for them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.mcp.client import PROTOCOL_VERSION
from tests.helpers.mcp import results, script
from tests.helpers.session import Json, SessionHarness
from tests.session.engine.control.test_answers import HostServer, payload

TOOLS = {"tools": [{"name": "buy", "inputSchema": {"type": "object"}}]}
CALLS = script([("mcp__shop__buy", {"a": 1})], "Done.")
DONE = script("Done.")


def manifest(version: str = PROTOCOL_VERSION, **fields: Any) -> Json:
    info = {"name": "shop", "version": "1"}
    result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info, "instructions": "Buy low."}
    return {"initializeResult": result, "toolsListResult": TOOLS, **fields}


async def initialize(host: HostServer, **manifests: Any) -> Json:
    fields = {"sdkMcpServers": ["shop"], "sdkMcpServerManifests": manifests}
    return payload(await host.request("initialize", **fields))


async def turn(host: HostServer) -> None:
    host.harness.prompt("go")
    await host.receive_until(lambda line: line["type"] == "result")


async def test_a_manifest_answers_the_handshake_and_calls_reach_the_server(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, CALLS, allowed_tools=("mcp__shop",)) as harness:
        host = HostServer(harness, **{"tools/call": {"content": [{"type": "text", "text": "Bought."}]}})
        answer = await initialize(host, shop=manifest(), other=manifest())
        await turn(host)
        prompt = harness.session.journal.system_text or ""

    assert answer["sdk_mcp_manifests_parked"] == {"shop": "parked"}
    assert "sdk_mcp_manifests" in answer["capabilities"]
    assert host.methods == ["tools/call"]
    assert "Bought." in str(results(harness)[0])
    assert "Buy low." in prompt


async def test_without_a_list_of_tools_only_the_list_is_asked_for(tmp_path: Path) -> None:
    paged = {**TOOLS, "nextCursor": "2"}
    for fields in ({"toolsListResult": None}, {"toolsListResult": paged}):
        async with SessionHarness(tmp_path, DONE) as harness:
            host = HostServer(harness)
            answer = await initialize(host, shop=manifest(**fields))
            await turn(host)

        assert answer["sdk_mcp_manifests_parked"] == {"shop": "parked"}
        assert host.methods == ["tools/list"]


@pytest.mark.parametrize(
    ("entry", "became"),
    [
        (5, "malformed"),
        ({}, "malformed"),
        (manifest(toolsListResult=[]), "malformed"),
        (manifest(toolsListResult={"tools": 5}), "malformed"),
        (manifest("1999-01-01"), "protocol_version_mismatch"),
    ],
)
async def test_a_manifest_that_cannot_be_used_leaves_the_handshake_to_the_server(
    tmp_path: Path, entry: Any, became: str
) -> None:
    async with SessionHarness(tmp_path, DONE) as harness:
        host = HostServer(harness)
        answer = await initialize(host, shop=entry)
        await turn(host)

    assert answer["sdk_mcp_manifests_parked"] == {"shop": became}
    assert host.methods == ["initialize", "notifications/initialized", "tools/list"]


async def test_a_manifest_is_for_one_connection(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, DONE) as harness:
        host = HostServer(harness)
        await initialize(host, shop=manifest())
        await turn(host)
        again = await initialize(host, shop=manifest())
        assert host.methods == []
        await host.request("mcp_reconnect", serverName="shop")

    assert again["sdk_mcp_manifests_parked"] == {"shop": "already_connected"}
    assert host.methods == ["initialize", "notifications/initialized", "tools/list"]


async def test_a_change_of_the_tools_is_asked_for(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, DONE) as harness:
        host = HostServer(harness, **{"tools/list": {"tools": [{"name": "sell", "inputSchema": {"type": "object"}}]}})
        await initialize(host, shop=manifest())
        await turn(host)
        changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        await host.request("mcp_message", server_name="shop", message=changed)
        await host.receive_until(lambda line: line.get("mcp_server", {}).get("tools_added") == ["mcp__shop__sell"])

    assert host.methods == ["tools/list"]
