"""Quotas, expiry, revocation, the audit log, and where tokens must not be found."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import stat
from pathlib import Path
from typing import Any

import pytest
import websockets
from websockets.asyncio.client import connect

from tests.helpers.gateway import Server, control, following, read_until, user
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.process import read_proc

AUTH = {"type": "auth", "credential": {"type": "oauth", "token": ""}}


async def code(server: Server, method: str, path: str, body: Any, token: str) -> str:
    """The code of a refusal; empty if there is none."""
    _, answer = await server.request(method, path, body, token)
    return str((answer or {}).get("error", {}).get("code", ""))


async def make_session(server: Server, token: str) -> str:
    _, made = await server.request("POST", "/sessions", {}, token)
    return str(made["session_id"])


@pytest.mark.parametrize("isolation", ["task", "process"])
async def test_requests_that_ask_a_model_are_held_to_the_quotas(tmp_path: Path, isolation: str) -> None:
    side = {"subtype": "side_question", "question": "What?"}
    title = {"subtype": "generate_session_title", "description": "A task"}
    async with Server(tmp_path, "--model", "offline", "--isolation", isolation) as server:
        thrifty = await server.make_token("thrifty", "create", "prompt", quotas={"tokens": 1})
        session = await make_session(server, thrifty)
        status, answer = await server.request("POST", f"/sessions/{session}/control", side, thrifty)
        assert (status, answer["response"]["synthetic"]) == (200, False)  # and not the progress before the answer
        for path, body in (("control", side), ("control", title), ("prompts", {"content": "say No."})):
            assert await code(server, "POST", f"/sessions/{session}/{path}", body, thrifty) == "quota_exceeded"
        viewer = await server.connect(f"/sessions/{session}/ws", thrifty)
        await viewer.send(control("1", "side_question", question="What?"))
        assert "quota_exceeded" in str(await viewer.recv())

        busy = await server.make_token("busy", "create", "prompt", quotas={"concurrent_turns": 1})
        first, second = await make_session(server, busy), await make_session(server, busy)
        await server.request("POST", f"/sessions/{first}/prompts", {"content": "wait 600\nsay Late."}, busy)
        for session in (first, second):
            assert await code(server, "POST", f"/sessions/{session}/control", side, busy) == "quota_exceeded"
        await server.request("POST", f"/sessions/{first}/control", {"subtype": "interrupt"})


async def test_quotas(tmp_path: Path) -> None:
    async with Server(tmp_path, "--model", "offline") as server:
        few = await server.make_token("few", "create", quotas={"sessions": 1})
        assert await code(server, "POST", "/sessions", {}, few) == ""
        assert await code(server, "POST", "/sessions", {}, few) == "quota_exceeded"
        async with connect(
            f"ws://127.0.0.1:{server.port}/ws", additional_headers={"Authorization": f"Bearer {few}"}
        ) as refused:
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await refused.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 4429

        busy = await server.make_token("busy", "create", "prompt", quotas={"concurrent_turns": 1})
        first, second = await make_session(server, busy), await make_session(server, busy)
        async with following(server, first) as viewer:
            wait = {"content": "wait 600\nsay Late."}
            assert await code(server, "POST", f"/sessions/{first}/prompts", wait, busy) == ""
            say = {"content": "say Now."}
            # Whoever sends the prompt: the token that created the session pays.
            for token in (busy, server.token):
                assert await code(server, "POST", f"/sessions/{second}/prompts", say, token) == "quota_exceeded"
            await server.request("POST", f"/sessions/{first}/control", {"subtype": "interrupt"})
            await viewer.wait_for(viewer.results)
        assert (await server.ask(second, "say Now."))["result"] == "Now."

        thrifty = await server.make_token("thrifty", "create", "prompt", quotas={"tokens": 1})
        session = await make_session(server, thrifty)
        assert (await server.ask(session, "say Once."))["result"] == "Once."
        again = {"content": "say Twice."}
        assert await code(server, "POST", f"/sessions/{session}/prompts", again, thrifty) == "quota_exceeded"
        broke = await server.make_token("broke", "create", "prompt", quotas={"usd": 0})
        session = await make_session(server, broke)
        assert await code(server, "POST", f"/sessions/{session}/prompts", again, broke) == "quota_exceeded"

        slow = await server.make_token("slow", "view", quotas={"requests_per_minute": 20})
        codes = [await code(server, "GET", "/sessions", None, slow) for _ in range(4)]
        assert (codes[0], codes[-1]) == ("", "rate_limited")
        assert await code(server, "GET", "/sessions", None, server.token) == ""


@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_a_token_that_ends_takes_its_connections_along(tmp_path: Path, how: str) -> None:
    async with Server(tmp_path) as server:
        session = await server.create()
        more = {"expires_in": 2} if how == "expired" else {}
        token = await server.make_token("guest", "view", **more)
        socket = await server.connect(f"/sessions/{session}/ws", token)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(
            f"GET /sessions/{session}/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        assert b"200 OK" in await reader.readline()
        other = await server.connect(f"/sessions/{session}/ws")
        if how == "revoked":
            assert (await server.request("DELETE", "/tokens/guest"))[0] == 204
        async with asyncio.timeout(PATIENCE_SECONDS):
            with pytest.raises(websockets.ConnectionClosed):
                await socket.recv()
            await reader.read()  # until the end of the stream
        writer.close()
        assert await code(server, "GET", "/sessions", None, token) == "unauthorized"
        await other.send(user("say Unseen."))
        assert (await read_until(other, "result"))[-1]["result"] == "Unseen."


async def test_the_audit_log_says_who_did_what(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        ann = await server.make_token("ann", "create", "prompt", tenant="acme")
        bob = await server.make_token("bob", "approve", tenant="acme")
        session = await make_session(server, ann)
        async with following(server, session) as viewer:
            prompt = {"content": 'call Bash {"command": "touch made", "description": "x"}'}
            await server.request("POST", f"/sessions/{session}/prompts", prompt, ann)
            await viewer.wait_for(lambda: any('"can_use_tool"' in line for _, line in viewer.lines))
            (question,) = (await server.request("GET", "/questions", token=bob))[1]["questions"]
            path = f"/questions/{session}/{question['request_id']}/answer"
            await server.request("POST", path, {"behavior": "deny", "message": "no"}, bob)
            await viewer.wait_for(viewer.results)
        await server.request("POST", f"/sessions/{session}/control", {"subtype": "interrupt"}, ann)
        await server.request("POST", f"/sessions/{session}/fork", {}, ann)
        await server.request("DELETE", f"/sessions/{session}", token=ann)
        await server.request("DELETE", "/tokens/bob")
        log = server.folder / "config" / "gateway" / "audit.jsonl"
        acts = [json.loads(line) for line in log.read_text().splitlines()]
        assert [(act["who"], act["tenant"], act["act"]) for act in acts] == [
            ("admin", "", "create_token"),
            ("admin", "", "create_token"),
            ("ann", "acme", "create"),
            ("ann", "acme", "prompt"),
            ("bob", "acme", "answer"),
            ("ann", "acme", "control"),
            ("ann", "acme", "fork"),
            ("ann", "acme", "delete"),
            ("admin", "", "revoke_token"),
        ]
        assert acts[4]["decision"] == "deny"
        assert "touch made" not in log.read_text()
        assert stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.parametrize("isolation", ["task", "process"])
async def test_tokens_are_found_nowhere(tmp_path: Path, isolation: str) -> None:
    """They come in every way that a client can send them, and then everything that was written is searched."""
    options = ("--model", "offline", "--log-format", "json", "--isolation", isolation)
    async with Server(tmp_path, *options) as server:
        session = await server.create()
        guest = await server.make_token("guest", "prompt", "create", "approve")
        wrong = "wrong-token-0123456789"
        socket = f"ws://127.0.0.1:{server.port}/sessions/{session}/ws"
        protocols: Any = ["parley", f"parley.token.{guest}"]
        async with connect(socket, subprotocols=protocols) as client:
            assert client.subprotocol == "parley"
            await client.send(user("say One."))
            await read_until(client, "result")
        auth = json.dumps(AUTH).replace('""', f'"{guest}"') + "\n"
        async with connect(socket) as client:
            await client.send(auth)
            await client.send(auth)  # again, as a client with two ways to send it does
            await client.send(user("say Two."))
            answers = await read_until(client, "result")
            assert guest not in json.dumps(answers)
        async with await server.connect(f"/sessions/{session}/ws", guest) as client:
            await client.send(auth)
            await client.send(user('call Bash {"command": "env; ps aux", "description": "Look"}'))
            asked = (await read_until(client, "control_request"))[-1]
            response = {"subtype": "success", "request_id": asked["request_id"], "response": {"behavior": "allow"}}
            await client.send(json.dumps({"type": "control_response", "response": response}) + "\n")
            answers = await read_until(client, "result")
            assert "PATH=" in json.dumps(answers)
            assert guest not in json.dumps(answers)
            assert server.token not in json.dumps(answers)
        for path in ("/sessions", f"/sessions?token={guest}"):
            _, answer = await server.request("GET", path, token=wrong)
            assert wrong not in json.dumps(answer)
        assert server.process is not None
        processes = [server.process.pid, *map(int, find_children(server.process.pid))]
        for token in (server.token, guest, wrong):
            for pid in processes:
                for name in ("cmdline", "environ"):
                    assert token.encode() not in read_proc(pid, name)
            found = [path for path in tmp_path.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]
            assert found == ([server.token_file] if token == server.token else [])
        database = (tmp_path / "config" / "gateway" / "tokens.db-wal").read_bytes()
        assert base64.b64encode(hashlib.sha256(guest.encode()).digest()) in database
        assert stat.S_IMODE(server.token_file.stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / "config" / "gateway").stat().st_mode) == 0o700
        said = "".join(server.stderr)
        for token in (server.token, guest, wrong):
            assert token not in said


def find_children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
