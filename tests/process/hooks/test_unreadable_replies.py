"""The executable and handlers that answer with something else than a JSON object.

One session has a handler for each reply; `if` gives each a command of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.hooks import results, specific
from tests.helpers.http_server import loopback, whole
from tests.helpers.mcp import config, script
from tests.helpers.process import ProcessHarness

Json = dict[str, Any]
DENY: Json = specific(permissionDecision="deny", permissionDecisionReason="no touching")
PAGE = "<html>Please log in to the proxy</html>"
TEXT = {"type": "text", "text": "looked at"}
UTF_16 = json.dumps(DENY).encode("utf-16")

COMMANDS: dict[str, tuple[bytes, bool]] = {
    "nothing": (b"", True),
    "text": (b"Checked: 3 rules\n", True),
    "html": (PAGE.encode(), True),
    "object": (b"{}", True),
    "mark": (b"\xef\xbb\xbf{}", True),
    "list": (b"[]", False),
    "string": (b'"deny"', False),
    "null": (b"null", False),
    "number": (b"0", False),
    "word": (b"Denied.\n", False),
    "yaml": (b"permissionDecision: deny", False),
    "latin": (b"Zugriff verweigert \xfc", False),
    "utf-16": (UTF_16, False),
    "utf-16-le": (UTF_16[2:], False),
}
"""Stdout of commands that exit with 0, and whether the call runs."""
URLS: dict[str, tuple[bytes, bool]] = {
    "nothing": (b"", True),
    "object": (b"{}", True),
    "text": (b"ok", False),
    "html": (PAGE.encode(), False),
    "list": (b"[]", False),
    "latin": (b'{"reason": "\xfc"}', False),
    "utf-16": (UTF_16, False),
}
"""Bodies of responses with status 200."""
TOOLS: dict[str, tuple[Json, bool]] = {
    "text": ({"content": [TEXT]}, True),
    "copy": ({"content": [{"type": "text", "text": "{}"}], "structuredContent": {"result": "{}"}}, True),
    "object": ({"content": [], "structuredContent": {}}, True),
    "nothing": ({"content": []}, False),
    "image": ({"content": [TEXT, {"type": "image", "data": "AAAA", "mimeType": "image/png"}]}, False),
    "resource": ({"content": [{"type": "resource", "resource": {"uri": "x:y", "text": json.dumps(DENY)}}]}, False),
    "structured": ({"content": [], "structuredContent": DENY}, False),
    "beside": ({"content": [TEXT], "structuredContent": DENY}, False),
    "misplaced": ({"content": [TEXT], "structuredContent": {"permissionDecision": "deny"}}, False),
    "differs": ({"content": [{"type": "text", "text": "{}"}], "structuredContent": DENY}, False),
}
"""Results of MCP tools."""
SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    params, result = message.get("params", {}), {}
    if message["method"] == "initialize":
        info = {"name": "replies", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": "reply", "description": "Replies.", "inputSchema": {"type": "object"}}]}
    elif message["method"] == "tools/call":
        result = params["arguments"]["result"]
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
CASES = {
    **{f"command-{name}": runs for name, (_, runs) in COMMANDS.items()},
    **{f"http-{name}": runs for name, (_, runs) in URLS.items()},
    **{f"mcp-{name}": runs for name, (_, runs) in TOOLS.items()},
}


def handlers(folder: Path, url: str) -> list[Json]:
    found: dict[str, Json] = {}
    for name, (output, _) in COMMANDS.items():
        (folder / name).write_bytes(output)
        found[f"command-{name}"] = {"type": "command", "command": f"cat {name}"}
    found |= {f"http-{name}": {"type": "http", "url": f"{url}/{name}"} for name in URLS}
    tool: Json = {"type": "mcp_tool", "server": "replies", "tool": "reply"}
    found |= {f"mcp-{name}": {**tool, "input": {"result": result}} for name, (result, _) in TOOLS.items()}
    return [{**handler, "if": f"Bash(touch ran-{case})"} for case, handler in found.items()]


async def talk(folder: Path) -> tuple[Path, dict[str, str]]:
    (folder / "server.py").write_text(SERVER)
    server = {"command": sys.executable, "args": [str(folder / "server.py")], "required": True}
    turns = script(*([("Bash", {"command": f"touch ran-{case}"})] for case in CASES), "Done.")
    async with loopback(*(whole(200, body) for body, _ in URLS.values())) as web:
        harness = ProcessHarness(
            folder,
            turns,
            *("--dangerously-skip-permissions", "--strict-mcp-config", "--mcp-config", *config(replies=server)),
            settings={"hooks": {"PreToolUse": [{"hooks": handlers(folder, web.url)}]}},
            PARLEY_WEBFETCH_ALLOW_PRIVATE="1",
            IS_SANDBOX="1",
        )
        async with harness:
            await harness.turn()
    return folder, dict(zip(CASES, results(harness), strict=True))


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    return asyncio.run(talk(tmp_path_factory.mktemp("replies")))


@pytest.mark.parametrize("case", CASES)
def test_a_reply_that_cannot_be_read_denies_the_call(case: str, session: tuple[Path, dict[str, str]]) -> None:
    folder, outputs = session

    assert (folder / f"ran-{case}").exists() == CASES[case], outputs[case]
    assert ("hook error" in outputs[case]) == (not CASES[case])


@pytest.mark.parametrize("on_failure", ["block", "continue"])
async def test_a_redacting_hook_that_cannot_be_read_withholds_the_output_if_it_must(
    tmp_path: Path, on_failure: str
) -> None:
    async with loopback(whole(200, PAGE.encode())) as web:
        hook = {"type": "http", "url": web.url, "onFailure": on_failure}
        harness = ProcessHarness(
            tmp_path,
            script([("Bash", {"command": "echo secret"})], "Done."),
            settings={"hooks": {"PostToolUse": [{"hooks": [hook]}]}},
            PARLEY_WEBFETCH_ALLOW_PRIVATE="1",
        )
        async with harness:
            await harness.turn()

    assert ("secret" in results(harness)[0]) == (on_failure == "continue")
