"""Editors on the WebSocket `/acp` of a real `parley serve`."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
import websockets
from websockets.asyncio.client import ClientConnection

from tests.helpers.gateway import PATIENCE_SECONDS, Server


async def call(socket: ClientConnection, method: str, **params: Any) -> tuple[Any, list[Any]]:
    """The response to a request, and the updates before it. Permission requests are allowed."""
    await socket.send(json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": params}))
    updates: list[Any] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            message = json.loads(await socket.recv())
            if message.get("id") == method:
                return message, updates
            if message["method"] == "session/request_permission":
                outcome = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
                await socket.send(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": outcome}))
            else:
                updates.append(message["params"]["update"])


async def open_session(socket: ClientConnection, cwd: Path) -> str:
    await call(socket, "initialize", protocolVersion=1)
    made, _ = await call(socket, "session/new", cwd=str(cwd), mcpServers=[])
    session_id: str = made["result"]["sessionId"]
    return session_id


async def test_a_session_over_a_socket(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, await server.connect("/acp") as socket:
        session_id = await open_session(socket, server.root)
        prompt = [{"type": "text", "text": 'call Bash {"command": "touch made"}\nsay Done.'}]
        answered, updates = await call(socket, "session/prompt", sessionId=session_id, prompt=prompt)

        assert answered["result"]["stopReason"] == "end_turn"
        assert "Done." in [
            update["content"]["text"] for update in updates if "agent_message" in update["sessionUpdate"]
        ]
        assert (server.root / "made").exists()


async def test_the_sessions_end_with_the_connection(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        async with await server.connect("/acp") as socket:
            session_id = await open_session(socket, server.root)
            await call(socket, "session/prompt", sessionId=session_id, prompt=[{"type": "text", "text": "say One."}])
        async with await server.connect("/acp") as socket:
            await call(socket, "initialize", protocolVersion=1)
            here = {"sessionId": session_id, "cwd": str(server.root), "mcpServers": []}
            loaded, updates = await call(socket, "session/load", **here)

        assert "result" in loaded
        assert [update["content"]["text"] for update in updates if "message" in update["sessionUpdate"]] == [
            "say One.",
            "One.",
        ]
        assert await server.kill(signal.SIGTERM) == 0


async def test_a_directory_outside_the_roots_is_refused(tmp_path: Path) -> None:
    async with Server(tmp_path) as server, await server.connect("/acp") as socket:
        await call(socket, "initialize", protocolVersion=1)
        refused, _ = await call(socket, "session/new", cwd=str(tmp_path), mcpServers=[])

    assert refused["error"] == {
        "code": -32602,
        "message": f"the directory {str(tmp_path)!r} is outside the roots that the token allows",
    }


@pytest.mark.parametrize("scope", ["create", "prompt", "approve", "view"])
async def test_only_administrators_may_connect(tmp_path: Path, scope: str) -> None:
    async with Server(tmp_path) as server:
        _, made = await server.request("POST", "/tokens", {"name": "someone", "scopes": [scope], "tenant": "acme"})
        socket = await server.connect("/acp", made["token"])
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await socket.recv()

    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4403, "forbidden: /acp needs the scope 'admin'")


async def test_processes_of_their_own_are_not_given_up(tmp_path: Path) -> None:
    async with Server(tmp_path, "--model", "offline", "--isolation", "process") as server:
        socket = await server.connect("/acp")
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await socket.recv()

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4403
