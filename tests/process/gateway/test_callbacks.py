"""Who the hooks of a session belong to, while clients come and go."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection

from tests.helpers.gateway import Server, control, read_until, reply, user
from tests.helpers.patience import PATIENCE_SECONDS

TOUCH = 'call Bash {{"command": "touch {}", "description": "Make a file"}}'
HOOKS = {"PreToolUse": [{"matcher": "Bash", "hookCallbackIds": ["judge"]}]}


async def initialize(socket: ClientConnection, **fields: Any) -> dict[str, Any]:
    """The response to `initialize`."""
    await socket.send(control("i", "initialize", **fields))
    response: dict[str, Any] = (await read_until(socket, "control_response"))[-1]["response"]
    return response


async def deny(socket: ClientConnection, asked: dict[str, Any] | None = None) -> None:
    """Answer the next hook with a denial."""
    asked = asked or (await read_until(socket, "control_request"))[-1]
    assert asked["request"]["subtype"] == "hook_callback"
    decision = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "no"}
    await socket.send(reply(asked["request_id"], {"hookSpecificOutput": decision}))


async def test_a_viewer_does_not_replace_the_hooks_of_a_client_that_is_away(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session = await server.create()
        path = f"/sessions/{session}/ws"
        owner = await server.connect(path, await server.make_token("owner", "prompt", "approve"))
        assert (await initialize(owner, hooks=HOOKS))["subtype"] == "success"
        await owner.send(user(TOUCH.format("one")))
        await deny(owner)
        await read_until(owner, "result")
        await owner.close()

        for name, scopes in (("viewer", ["view"]), ("prompter", ["prompt"]), ("approver", ["prompt", "approve"])):
            token = await server.make_token(name, *scopes)
            socket = await server.connect(path, token)
            plain: list[dict[str, Any]] = [{}, {"hooks": {}}, {"hooks": None}, {"promptSuggestions": False}]
            for fields in plain:
                assert (await initialize(socket, **fields))["subtype"] == "success"
            if "approve" in scopes:
                refused = await initialize(socket, hooks={"PreToolUse": []} | HOOKS)
                assert (refused["error_code"], "'owner'" in refused["error"]) == ("callbacks_taken", True)
            await socket.close()

        # The hook waits for its client, also in an engine that was started since.
        await server.kill()
        await server.start()
        other = await server.connect(path)
        assert (await initialize(other))["subtype"] == "success"
        await other.send(user(TOUCH.format("two")))
        owner = await server.connect(path, await self_token(server, "owner"))
        assert (await initialize(owner, hooks=HOOKS))["subtype"] == "success"
        await deny(owner)
        await read_until(other, "result")
        assert not list(server.root.iterdir())


async def self_token(server: Server, name: str) -> str:
    """A new token with the name of an old one, which is revoked."""
    assert (await server.request("DELETE", f"/tokens/{name}"))[0] == 204
    return await server.make_token(name, "prompt", "approve")


async def test_hooks_can_be_replaced_by_those_who_may(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session = await server.create()
        path = f"/sessions/{session}/ws"
        token = await server.make_token("owner", "prompt", "approve")
        first = await server.connect(path, token)
        assert (await initialize(first, hooks=HOOKS))["subtype"] == "success"

        # While the owner is there, an administrator cannot take its hooks.
        admin = await server.connect(path)
        assert (await initialize(admin, hooks=HOOKS))["error_code"] == "callbacks_taken"
        # The same token can, from another connection.
        second = await server.connect(path, token)
        assert (await initialize(second, hooks=HOOKS))["subtype"] == "success"
        await admin.send(user(TOUCH.format("one")))
        await deny(second)
        await read_until(admin, "result")
        await second.close()
        await first.close()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await server.request("GET", f"/sessions/{session}"))[1]["clients"] > 1:  # noqa: ASYNC110  # it is a process
                await asyncio.sleep(0.05)
        # The administrator can when nobody is there.
        assert (await initialize(admin, hooks=HOOKS))["subtype"] == "success"
        await admin.send(user(TOUCH.format("two")))
        await deny(admin)
        await read_until(admin, "result")
        # The token that declared hooks can drop them.
        assert (await initialize(admin, hooks={}))["subtype"] == "success"
        free = await server.connect(path, token)
        assert (await initialize(free, hooks=HOOKS))["subtype"] == "success"
        assert not list(server.root.iterdir())


async def test_what_skips_questions_needs_the_scope_approve(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session = await server.create()
        socket = await server.connect(f"/sessions/{session}/ws", await server.make_token("prompter", "prompt"))
        agent = {"description": "x", "prompt": "x"}
        for fields, allowed in (
            ({"hooks": HOOKS}, False),
            ({"agents": {"a": {**agent, "permissionMode": "acceptEdits"}}}, False),
            ({"agents": {"a": {**agent, "permissionMode": "plan"}}}, True),
            ({"sdkMcpServers": ["mine"]}, True),
        ):
            found = await initialize(socket, **fields)
            assert (found.get("error_code") != "forbidden") == allowed, found
            assert (found["subtype"] == "success") == allowed, found
        status, refused = await server.request(
            *("POST", f"/sessions/{session}/control", {"subtype": "mcp_call", "tool": "mcp__a__b"}),
            await server.make_token("other prompter", "prompt"),
        )
        assert (status, refused["error"]["code"]) == (403, "forbidden")


async def test_each_request_to_a_server_of_the_client_comes_once(tmp_path: Path) -> None:
    answers = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "calc"}},
        "tools/list": {"tools": []},
    }
    options = ["--mcp-config", json.dumps({"mcpServers": {"calc": {"type": "sdk", "name": "calc"}}})]
    async with Server(tmp_path) as server:
        session = await server.create(options={"args": options})
        socket = await server.connect(f"/sessions/{session}/ws")
        await socket.send(control("i", "initialize", sdkMcpServers=["calc"]))
        await socket.send(user("say hello"))
        asked: list[str] = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (line := json.loads(await socket.recv()))["type"] != "result":
                if line["type"] != "control_request":
                    continue
                message = line["request"]["message"]
                asked.append(message["method"])
                if message["method"] in answers:
                    response = {"jsonrpc": "2.0", "id": message["id"], "result": answers[message["method"]]}
                    await socket.send(reply(line["request_id"], {"mcp_response": response}))
                else:
                    await socket.send(reply(line["request_id"], {"mcp_response": {}}))

        assert asked == ["initialize", "notifications/initialized", "tools/list"]
