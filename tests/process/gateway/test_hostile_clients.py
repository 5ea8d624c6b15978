"""Clients that send nonsense, do not read, or have no rights; and what commands of sessions can learn of the server."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import ClientDisconnect
from websockets.exceptions import ConnectionClosed

from parley.gateway.http.event_stream import EventStream
from parley.gateway.hub import SERVER, HubSettings, SessionHub
from tests.helpers.forked import run_parley
from tests.helpers.gateway import Server
from tests.helpers.process import read_proc


@pytest.mark.parametrize("header", ["Host: [", "Host: 127.0.0.1\r\nOrigin: http://[", "Host: 127.0.0.1\r\nOrigin: x"])
async def test_malformed_headers_are_refused(tmp_path: Path, header: str) -> None:
    async with Server(tmp_path) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = f"GET /sessions HTTP/1.1\r\n{header}\r\nAuthorization: Bearer {server.token}\r\n\r\n"
        writer.write(head.encode())
        status = (await reader.readline()).split()[1]
        writer.close()
        assert status in (b"421", b"403")


async def test_a_token_without_scopes_reads_nothing(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session = await server.create()
        _, made = await server.request("POST", "/tokens", {"name": "none", "scopes": []})
        socket = await server.connect(f"/sessions/{session}/ws?after=0", made["token"])
        with pytest.raises(ConnectionClosed, match="forbidden"):
            await socket.recv()


async def test_the_environment_of_the_server_shows_no_keys(tmp_path: Path) -> None:
    async with Server(tmp_path, environment={"ANTHROPIC_API_KEY": "secret-key"}) as server:
        assert server.process is not None
        assert b"secret-key" not in read_proc(server.process.pid, "environ")


async def test_a_second_server_does_not_use_the_same_state(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        options = ("serve", "--listen", f"unix:{tmp_path}/socket", "--state", str(tmp_path / "config" / "gateway"))
        second = await asyncio.to_thread(run_parley, options, cwd=tmp_path, env={"HOME": str(tmp_path)})
        assert second.returncode == 1
        assert "another server uses" in second.stderr
        assert (await server.request("GET", "/healthz"))[0] == 200


async def test_an_event_stream_whose_client_is_gone_at_once_is_closed(tmp_path: Path) -> None:
    closed: list[bool] = []

    async def take() -> list[bytes]:
        return []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def fail(message: Any) -> None:
        raise OSError("the client is gone")

    async def block(message: Any) -> None:
        await asyncio.Event().wait()

    stream = EventStream(take, lambda: closed.append(True), asyncio.Event())
    await stream({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, block)
    stream = EventStream(take, lambda: closed.append(True), asyncio.Event())
    with pytest.raises(ClientDisconnect):
        await stream({"type": "http", "asgi": {"spec_version": "2.4"}}, receive, fail)
    assert closed == [True, True]


async def test_the_audit_log_keeps_the_start_of_a_long_value(tmp_path: Path) -> None:
    hub = SessionHub(HubSettings(state=tmp_path, root=str(tmp_path)))
    hub.audit.write("control", SERVER, request="x" * 1_000_000)
    hub.close()
    assert len(json.loads((tmp_path / "audit.jsonl").read_text())["request"]) == 1000


@pytest.mark.parametrize("model", ["scripted:pipe", "replay:pipe", "scripted:/dev/zero", "replay:/dev/zero"])
async def test_a_model_that_is_no_file_does_not_stop_the_server(tmp_path: Path, model: str) -> None:
    async with Server(tmp_path) as server:
        os.mkfifo(server.root / "pipe")
        session = await server.create()
        body = {"subtype": "set_model", "model": model}
        status, reply = await server.request("POST", f"/sessions/{session}/control", body)
        assert status == 400
        assert "not a regular file" in reply["error"]["message"]
