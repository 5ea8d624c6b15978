"""The tools about MCP servers, through the executable: finding tools, listing directories, waiting for a server."""

from __future__ import annotations

import json
from pathlib import Path

from tests.helpers.mcp import answer, config, own, results, script
from tests.helpers.process import ProcessHarness
from tests.helpers.session import Json

CHILDREN = [
    {"uri": "book://shelf/a", "name": "a"},
    {"uri": "book://shelf/low", "name": "low", "mimeType": "inode/directory"},
]
LISTED = {"tools": [{"name": "add", "description": "Add numbers", "inputSchema": {"type": "object"}}]}


async def test_directories_are_listed_and_a_search_finds_tools_or_says_that_there_are_none(tmp_path: Path) -> None:
    servers = config(library=own("plain.py", "library"), workshop=own("workshop.py", "stdio"))
    turns = script(
        [("ReadMcpResourceDirTool", {"server": "library", "uri": "book://shelf"})],
        [("ReadMcpResourceDirTool", {"server": "library", "uri": "book://nothing"})],
        [("ToolSearch", {"query": "select:mcp__workshop__add"})],
        [("ToolSearch", {"query": "xylophone"})],
        [("mcp__workshop__add", {"a": 2, "b": 3})],
        "Done.",
    )
    flags = ("--mcp-config", *servers, "--allowedTools", "mcp__workshop")
    async with ProcessHarness(tmp_path, turns, *flags, ENABLE_TOOL_SEARCH="true") as harness:
        result = await harness.turn()
    listed, refused, found, nothing, added = results(harness)
    assert {"ReadMcpResourceDirTool", "ToolSearch"} <= set(harness.of("init")[0]["tools"])
    assert json.loads(listed) == CHILDREN
    assert refused == "MCP server 'library': not a directory (error -32602)"
    assert found == [{"type": "tool_reference", "tool_name": "mcp__workshop__add"}]
    assert nothing.startswith("No deferred tool matches 'xylophone'.")
    assert added == [{"type": "text", "text": "5"}]
    assert (result["result"], result["permission_denials"]) == ("Done.", [])


async def test_a_model_waits_for_a_server_that_is_still_connecting(tmp_path: Path) -> None:
    servers = config(late={"type": "sdk", "name": "late"})
    turns = script([("WaitForMcpServers", {})], [("mcp__late__add", {})], "Done.")
    flags = ("--mcp-config", *servers, "--allowedTools", "mcp__late")
    async with ProcessHarness(tmp_path, turns, *flags, ENABLE_TOOL_SEARCH="true") as harness:
        harness.prompt("go")
        # The first request waits a few seconds for the server, which is run here and says nothing yet.
        await harness.receive("assistant")

        served = set[str]()

        def serve(line: Json) -> bool:
            request = line.get("request", {})
            if request.get("subtype") == "mcp_message" and line["request_id"] not in served:
                served.add(line["request_id"])
                message = request["message"]
                given = {"jsonrpc": "2.0", "id": message.get("id"), "result": replies.get(message["method"], {})}
                harness.send(answer(line, {"mcp_response": given}))
            return bool(line["type"] == "result")

        replies = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "late", "version": "1"},
            },
            "tools/list": LISTED,
            "tools/call": {"content": [{"type": "text", "text": "5"}]},
        }
        for line in list(harness.lines):
            serve(line)
        await harness.receive_until(serve)
    assert "WaitForMcpServers" in harness.of("init")[0]["tools"]
    assert results(harness) == ["late: connected", [{"type": "text", "text": "5"}]]
