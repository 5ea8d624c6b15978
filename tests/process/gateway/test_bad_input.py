"""Bad input through a real server: each has a code, and the session and the server keep working."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import websockets
from websockets.asyncio.client import ClientConnection, connect

from tests.helpers.gateway import Server, control, following, read_until, reply, user
from tests.helpers.patience import PATIENCE_SECONDS

TOUCH = 'call Bash {"command": "touch made", "description": "Make a file"}'
HUGE = 100 * 1024 * 1024
UUID = "33333333-3333-4333-8333-333333333333"


@asynccontextmanager
async def working(tmp_path: Path, *options: str) -> AsyncIterator[tuple[Server, str]]:
    """A server with a session. Both must still work at the end."""
    async with Server(tmp_path, "--model", "offline", *options) as server:
        session = await server.create()
        yield server, session
        assert (await server.ask(session, "say Still here."))["result"] == "Still here."
        assert (await server.request("GET", "/healthz"))[0] == 200
        noise = [line for line in server.stderr if not line.startswith(("created the token file", "listening on"))]
        assert noise == []


async def close_code(socket: ClientConnection) -> tuple[int, str]:
    """The code and the reason with which the server closes a connection."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                await socket.recv()
    except websockets.ConnectionClosed as closed:
        return (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else (0, "")


async def notice(socket: ClientConnection) -> dict[str, Any]:
    """The next notice of the gateway."""
    while True:
        line = (await read_until(socket, "system"))[-1]
        if line["subtype"] == "informational":
            return line


async def raw(server: Server, data: bytes) -> bytes:
    """Send bytes and read until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(data)
    async with asyncio.timeout(PATIENCE_SECONDS):
        received = await reader.read()
    writer.close()
    return received


def code_of(response: bytes) -> str:
    return str(json.loads(response.partition(b"\r\n\r\n")[2])["error"]["code"])


async def test_wrong_tokens_and_foreign_pages(tmp_path: Path) -> None:
    async with working(tmp_path) as (server, session):
        url = f"ws://127.0.0.1:{server.port}/sessions/{session}/ws"
        for token in ("wrong", "", "x" * 5000, "ü"):
            status, answer = await server.request("GET", "/sessions", token=token or "-")
            assert (status, answer["error"]["code"]) == (401, "unauthorized")
        for first in (
            {"type": "auth", "credential": {"type": "oauth", "token": "wrong"}},
            {"type": "auth", "credential": {"type": "oauth"}},
            {"type": "auth"},
            {"type": "user"},
        ):
            async with connect(url) as anonymous:
                await anonymous.send(json.dumps(first) + "\n")
                code, reason = await close_code(anonymous)
                assert (code, reason.partition(":")[0]) == (4401, "unauthorized")
        for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}):
            with pytest.raises(websockets.InvalidStatus) as refused:
                await connect(url, additional_headers={"Authorization": f"Bearer {server.token}", **headers})
            assert refused.value.response.status_code == 403
        evil = f"GET /sessions HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer {server.token}\r\n"
        assert code_of(await raw(server, f"{evil}Connection: close\r\n\r\n".encode())) == "forbidden_host"
        async with connect(url, origin=websockets.Origin(f"http://127.0.0.1:{server.port}")) as own:
            await own.send(json.dumps({"type": "auth", "credential": {"type": "oauth", "token": server.token}}) + "\n")
            await own.send(user("say Own page."))
            assert (await read_until(own, "result"))[-1]["result"] == "Own page."


async def test_an_address_that_guesses_tokens_is_slowed_down(tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text("[limits]\nwrong_tokens_per_minute = 30\n")
    async with working(tmp_path, "--config", str(config)) as (server, _):
        codes = [(await server.request("GET", "/sessions", token=f"guess {number}"))[0] for number in range(6)]
        assert codes[:3] == [401] * 3
        assert codes[-1] == 429
        assert (await server.request("GET", "/sessions"))[0] == 200  # a right token is not held up


async def test_frames_that_are_no_lines(tmp_path: Path) -> None:
    frames = [b"not json", b"[1]", b'"text"', b"{", b"\x00", b"[" * 100_000, b"\xff\xfe\x00", b'{"a":\xed\xa0\xbd}']
    async with working(tmp_path) as (server, session), await server.connect(f"/sessions/{session}/ws") as client:
        for frame in frames:
            await client.send(frame)
            await client.send(control("next", "get_session_cost"))
            refused, *_, answer = await read_until(client, "control_response")
            assert (refused["code"], answer["response"]["subtype"]) == ("invalid_line", "success")
        modes: list[Any] = [{}, [], 7, None]
        for mode in modes:
            await client.send(control("odd", "set_permission_mode", mode=mode))
            assert (await read_until(client, "control_response"))[-1]["response"]["subtype"] == "error"


async def test_lines_with_a_part_that_cannot_be_decoded(tmp_path: Path) -> None:
    request = b'{"type":"control_request","request_id":"a","request":{"subtype":"interrupt","v":%b}}'
    response = b'{"type":"control_response","response":{"subtype":"success","request_id":"q","response":{"v":%b}}}'
    prompt = b'{"type":"user","message":{"role":"user","content":%b}}'
    async with working(tmp_path) as (server, session), await server.connect(f"/sessions/{session}/ws") as client:
        for value in (b"1e999", b'"\xff"'):
            await client.send(request % value)
            failed = (await read_until(client, "control_response"))[-1]["response"]
            assert (failed["request_id"], failed["error_code"]) == ("a", "invalid_line")
            await client.send(response % value)
            assert (await notice(client))["code"] == "invalid_line"
            await client.send(prompt % value)
            assert (await read_until(client, "result"))[-1]["is_error"] is True


async def test_an_unknown_command_is_an_error_and_no_prompt(tmp_path: Path) -> None:
    async with working(tmp_path) as (server, session), await server.connect(f"/sessions/{session}/ws") as client:
        await client.send(user("/cots"))
        result = (await read_until(client, "result"))[-1]
        assert (result["is_error"], result["num_turns"]) == (True, 0)
        assert "did you mean /cost?" in result["errors"][0]


async def test_messages_that_are_too_long(tmp_path: Path) -> None:
    async with working(tmp_path) as (server, session):
        async with await server.connect(f"/sessions/{session}/ws") as client:
            sending = asyncio.create_task(client.send("x" * HUGE))
            assert (await close_code(client))[0] == 1009
            await asyncio.gather(sending, return_exceptions=True)
        head = f"POST /sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
        assert (
            code_of(await raw(server, f"{head}Content-Length: {HUGE}\r\nConnection: close\r\n\r\n".encode()))
            == "too_large"
        )

        # Without a length, the body is counted.
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(f"{head}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n".encode())
        chunk = b"%x\r\n%s\r\n" % (1 << 20, b" " * (1 << 20))
        try:
            for _ in range(HUGE >> 20):
                writer.write(chunk)
                await writer.drain()
        except ConnectionError:
            pass
        else:
            assert code_of(await reader.read()) == "too_large"
        writer.close()


async def test_a_client_that_vanishes_is_detached(tmp_path: Path) -> None:
    """It is cut off without a word: its end neither closes the connection nor answers pings."""
    async with working(tmp_path, "--ping-seconds", "1") as (server, session):
        quiet = await server.connect(f"/sessions/{session}/ws")
        key = base64.b64encode(os.urandom(16)).decode()
        with socket.create_connection(("127.0.0.1", server.port)) as silent:
            silent.sendall(
                f"GET /sessions/{session}/ws HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
                f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                f"Sec-WebSocket-Key: {key}\r\n\r\n".encode()
            )
            assert b"101" in silent.recv(4096)
            async with asyncio.timeout(PATIENCE_SECONDS):
                for clients in (2, 1):
                    while (await server.request("GET", f"/sessions/{session}"))[1]["clients"] != clients:
                        pass
        # The other one was there before, said as little, and answers pings.
        await quiet.send(user("say Here."))
        assert (await read_until(quiet, "result"))[-1]["result"] == "Here."
        await quiet.close()


async def test_half_a_request_does_not_stay(tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text("[limits]\nhead_seconds = 1\n")
    async with working(tmp_path, "--config", str(config)) as (server, _):
        for start in (b"", b"GET /healthz HTT", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: "):
            assert code_of(await raw(server, start)) == "timed_out"


async def test_more_connections_than_the_limit_are_refused(tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text("[limits]\nconnections = 5\n")
    async with working(tmp_path, "--config", str(config)) as (server, session):
        clients = [await server.connect(f"/sessions/{session}/ws") for _ in range(5)]
        with pytest.raises(websockets.InvalidStatus) as refused:
            await server.connect(f"/sessions/{session}/ws")
        assert refused.value.response.status_code == 503
        assert code_of(await raw(server, b"")) == "too_many_connections"
        await clients[0].send(user("say Served."))
        assert (await read_until(clients[0], "result"))[-1]["result"] == "Served."
        for client in clients:
            await client.close()


async def test_cursors_of_other_sessions_and_of_the_future(tmp_path: Path) -> None:
    async with working(tmp_path) as (server, session):
        await server.ask(session, "say Hi.")
        other = await server.create()
        for cursor, code, name in (
            ("99", 4409, "cursor_in_the_future"),
            (f"{session}:99", 4409, "cursor_in_the_future"),
            (f"{other}:1", 4409, "cursor_of_another_session"),
            ("-1", 4400, "invalid_cursor"),
            ("9" * 30, 4400, "invalid_cursor"),
            ("1e3", 4400, "invalid_cursor"),
        ):
            async with await server.connect(f"/sessions/{session}/ws?after={cursor}") as client:
                closed, reason = await close_code(client)
                assert (closed, reason.partition(":")[0]) == (code, name)
            for path in (
                f"/sessions/{session}/events?after=",
                f"/v1/code/sessions/{session}/events/stream?from_sequence_num=",
            ):
                _, answer = await server.request("GET", path + cursor)
                assert answer["error"]["code"] == name
        async with await server.connect(f"/sessions/{session}/ws?after={session}:0") as client:
            assert (await read_until(client, "result"))[-1]["result"] == "Hi."


async def test_answers_to_questions_that_are_gone(tmp_path: Path) -> None:
    async with working(tmp_path) as (server, session):
        client = await server.connect(f"/sessions/{session}/ws")
        await client.send(reply("no-such-question", {"behavior": "allow"}))
        assert (await notice(client))["code"] == "unknown_question"
        await client.send(user(TOUCH))
        asked = (await read_until(client, "control_request"))[-1]["request_id"]
        await client.send(control("stop", "interrupt"))
        await read_until(client, "result")
        path = f"/questions/{session}/{asked}/answer"
        status, answer = await server.request("POST", path, {"behavior": "allow"})
        assert (status, answer["error"]["code"]) == (409, "question_withdrawn")
        await client.send(reply(asked, {"behavior": "allow"}))
        assert (await notice(client))["code"] == "question_withdrawn"

        await client.send(user(TOUCH))
        asked = (await read_until(client, "control_request"))[-1]["request_id"]
        await client.send(reply(asked, {"behavior": "deny", "message": "no"}))
        await read_until(client, "result")
        await client.send(reply(asked, {"behavior": "allow"}))
        late = await notice(client)
        assert (late["code"], "'admin'" in late["content"]) == ("already_decided", True)
        assert not (server.root / "made").exists()
        await client.close()


async def test_two_prompts_with_one_id(tmp_path: Path) -> None:
    async with working(tmp_path) as (server, session):
        path = f"/sessions/{session}/prompts"
        async with following(server, session) as viewer:
            for content, expected in (("say One.", 202), ("say One.", 202), ("say Other.", 409), ([], 409)):
                status, answer = await server.request("POST", path, {"content": content, "uuid": UUID})
                assert status == expected, answer
                assert "error" not in answer or answer["error"]["code"] == "duplicate_prompt"
            await viewer.wait_for(viewer.results)
            # Also when the first one is done, and after a restart.
            await server.kill()
            await server.start()
            status, answer = await server.request("POST", path, {"content": "say Other.", "uuid": UUID})
            assert (status, answer["error"]["code"]) == (409, "duplicate_prompt")
            client = await server.connect(f"/sessions/{session}/ws?after={viewer.last}")
            await client.send(user("say Other.", uuid=UUID))
            refused = (await read_until(client, "result"))[-1]
            assert "another prompt has the id" in refused["errors"][0]
            assert UUID not in (refused.get("user_message_uuids") or [])
            await client.send(user("say Next."))
            assert (await read_until(client, "result"))[-1]["result"] == "Next."
            await viewer.wait_for(lambda: len(viewer.results()) == 2)
        assert [result["result"] for result in viewer.results()] == ["One.", "Next."]
        await client.close()


async def test_directories_outside_the_roots(tmp_path: Path) -> None:
    async with working(tmp_path) as (server, _):
        (server.root / "mine").mkdir()
        (server.root / "mine-too").mkdir()
        (server.root / "mine" / "link").symlink_to(server.root / "mine-too")
        (server.root / "out").symlink_to("/")
        token = await server.make_token("rooted", "create", "approve", "prompt", roots=["mine"])
        far = await server.make_token("far", "create", roots=["/", "/etc"])
        for cwd, given, code in (
            ("/etc", token, "outside_roots"),
            ("..", token, "outside_roots"),
            ("mine-too", token, "outside_roots"),
            ("mine/link", token, "outside_roots"),
            ("mine/../mine-too", token, "outside_roots"),
            ("out/etc", server.token, "outside_roots"),
            ("/etc", far, "outside_roots"),  # the root of the server holds for all
            (None, token, "outside_roots"),
            ("mine/nope", token, "unknown_directory"),
            ("mine\x00", token, "unknown_directory"),
        ):
            status, answer = await server.request("POST", "/sessions", {"cwd": cwd}, given)
            assert answer.get("error", {}).get("code") == code, (cwd, status, answer)
        status, made = await server.request("POST", "/sessions", {"cwd": "mine"}, token)
        assert (status, made["work_dir"]) == (201, str(server.root / "mine"))
        async with await server.connect("/ws?cwd=/etc") as client:
            assert (await close_code(client))[1].startswith("outside_roots")
        for path, code in (
            ("/etc", "outside_roots"),
            ("..", "outside_roots"),
            ("", "invalid_line"),
            (7, "invalid_line"),
        ):
            body = {"subtype": "set_cwd", "path": path}
            _, answer = await server.request("POST", f"/sessions/{made['session_id']}/control", body, token)
            assert answer["error"]["code"] == code
