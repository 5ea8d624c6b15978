"""A token without the scope 'approve' cannot run anything that an approver is not asked about."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.gateway import Server
from tests.helpers.patience import PATIENCE_SECONDS

COMMAND = {"type": "command", "command": "touch made"}
SERVER = {"type": "stdio", "command": "touch", "args": ["made"]}
AGENT = {"description": "An agent", "prompt": "Work."}
DECLARATIONS: dict[str, Any] = {
    "hooks": {"hooks": {"PreToolUse": [{"matcher": "Bash", "hookCallbackIds": ["h1"]}]}},
    "hooks of an agent": {"agents": {"one": {**AGENT, "hooks": {"PreToolUse": [{"hooks": [COMMAND]}]}}}},
    "servers of an agent": {"agents": {"one": {**AGENT, "mcpServers": [{"made": SERVER}]}}},
    "mode of an agent": {"agents": {"one": {**AGENT, "permissionMode": "acceptEdits"}}},
    "unknown field of an agent": {"agents": {"one": {**AGENT, "later": "x"}}},
    "plugins": {"plugins": [{"type": "local", "path": "/plugin"}]},
    "servers": {"mcpServers": {"made": SERVER}},
}


async def make_token(server: Server, *scopes: str, **more: Any) -> str:
    status, made = await server.request("POST", "/tokens", {"name": "-".join(scopes), "scopes": scopes, **more})
    assert status == 201, made
    return str(made["token"])


async def test_prompt_declares_nothing_that_runs_without_a_question(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        weak, strong = await make_token(server, "create", "prompt"), await make_token(server, "prompt", "approve")
        session = await server.create()
        for name, declared in DECLARATIONS.items():
            for token, is_allowed in ((weak, False), (strong, name != "plugins")):
                socket = await server.connect(f"/sessions/{session}/ws", token)
                await socket.send(control("r1", subtype="initialize", **declared))
                reply = await read_reply(socket)
                await socket.close()
                if token == weak:
                    assert reply.get("error_code") == "forbidden", name
                elif is_allowed:
                    assert reply.get("error_code") != "forbidden", name


async def test_prompt_may_declare_agents_and_servers_of_the_client(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        socket = await server.connect("/ws", await make_token(server, "create", "prompt"))
        agents = {"one": {**AGENT, "tools": ["Read"], "permissionMode": "plan", "mcpServers": ["ours"]}}
        await socket.send(control("r1", subtype="initialize", agents=agents, sdkMcpServers=["ours"]))
        # The engine greets the server of the client before it answers.
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (line := json.loads(await socket.recv()))["type"] != "control_request":
                assert line["type"] != "control_response", line
        assert line["request"]["subtype"] == "mcp_message"


async def test_prompt_loads_no_plugin(tmp_path: Path) -> None:
    plugin = tmp_path / "root" / "plugin"
    (plugin / ".claude-plugin").mkdir(parents=True)
    (plugin / ".claude-plugin" / "plugin.json").write_text('{"name": "plugin", "version": "1.0.0"}')
    hooks = {"hooks": {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": f"touch {tmp_path}/made"}]}]}}
    (plugin / "hooks").mkdir()
    (plugin / "hooks" / "hooks.json").write_text(json.dumps(hooks))
    async with Server(tmp_path, root=tmp_path / "root") as server:
        token, session = await make_token(server, "prompt"), await server.create()
        body = {"subtype": "reload_plugins", "add_plugins": [{"type": "local", "path": str(plugin)}]}
        status, reply = await server.request("POST", f"/sessions/{session}/control", body, token)
        assert (status, reply["error"]["code"]) == (403, "forbidden")
        socket = await server.connect(f"/sessions/{session}/ws", token)
        await socket.send(json.dumps({"type": "user", "message": {"role": "user", "content": "say Hi."}}) + "\n")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while json.loads(await socket.recv())["type"] != "result":
                pass
        assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("subtype", ["mcp_call", "mcp_toggle", "get_hooks_listing", "a_request_of_a_later_version"])
async def test_requests_that_are_not_known_to_be_harmless_need_approve(tmp_path: Path, subtype: str) -> None:
    async with Server(tmp_path) as server:
        token, session = await make_token(server, "prompt"), await server.create()
        status, reply = await server.request("POST", f"/sessions/{session}/control", {"subtype": subtype}, token)
        assert (status, reply["error"]["code"]) == (403, "forbidden")


async def test_only_an_approver_sees_what_the_operator_has_configured(tmp_path: Path) -> None:
    settings = {
        "env": {"SERVICE_KEY": "secret-1"},
        "mcpServers": {
            "local": {"command": "false", "args": ["--key", "secret-2"]},
            "remote": {"type": "http", "url": "http://user:secret-3@127.0.0.1:1/?key=secret-4"},
        },
    }
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "settings.json").write_text(json.dumps(settings))
    async with Server(tmp_path) as server:
        tokens = {scope: await make_token(server, scope) for scope in ("view", "prompt", "approve")}
        session = await server.create()
        for scope, token in tokens.items():
            socket = await server.connect(f"/sessions/{session}/ws", token)
            for subtype in ("get_settings", "mcp_status"):
                _, reply = await server.request("POST", f"/sessions/{session}/control", {"subtype": subtype}, token)
                await socket.send(control(subtype, subtype=subtype))
                answers = reply["response"], (await read_reply(socket))["response"]
                for answer in answers:
                    assert ("secret-" in json.dumps(answer)) == (scope == "approve")
                    if subtype == "get_settings":
                        assert answer["applied"]["model"] == "offline"
                    else:
                        assert [server["name"] for server in answer["mcpServers"]] == ["local", "remote"]


async def test_an_approver_of_one_tenant_changes_nothing_for_all(tmp_path: Path) -> None:
    rule = {"type": "addRules", "rules": [{"toolName": "Bash"}], "behavior": "allow", "destination": "userSettings"}
    async with Server(tmp_path) as server:
        token = await make_token(server, "create", "prompt", "approve", tenant="acme")
        socket = await server.connect("/ws", token)
        content = 'call Bash {"command": "touch made", "description": "Make a file"}'
        await socket.send(json.dumps({"type": "user", "message": {"role": "user", "content": content}}) + "\n")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (line := json.loads(await socket.recv()))["type"] != "control_request":
                pass
        answer = {"behavior": "allow", "updatedInput": line["request"]["input"], "updatedPermissions": [rule]}
        _, listed = await server.request("GET", "/questions")
        path = f"/questions/{listed['questions'][0]['session']}/{line['request_id']}"
        status, reply = await server.request("POST", f"{path}/answer", answer, token)
        assert (status, reply["error"]["code"]) == (403, "forbidden")
        response = {"subtype": "success", "request_id": line["request_id"], "response": answer}
        await socket.send(json.dumps({"type": "control_response", "response": response}) + "\n")
        await socket.send(control("r1", subtype="update_settings", source="userSettings", settings={"model": "x"}))
        assert (await read_reply(socket))["error_code"] == "forbidden"
        assert not (tmp_path / "config" / "settings.json").exists()
        # The question is still open, and a rule for the session is the tenant's own.
        answer["updatedPermissions"] = [{**rule, "destination": "session"}]
        assert (await server.request("POST", f"{path}/answer", answer, token))[0] == 200


def control(request_id: str, **request: Any) -> str:
    return json.dumps({"type": "control_request", "request_id": request_id, "request": request}) + "\n"


async def read_reply(socket: Any) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (line := json.loads(await socket.recv()))["type"] != "control_response":
            pass
    reply: dict[str, Any] = line["response"]
    return reply
