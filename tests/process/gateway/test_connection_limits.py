"""What a connection may do before and after its token, and what ends it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import websockets
from websockets.asyncio.client import ClientConnection, connect

from parley.gateway.http.frames import TOKEN_PARTS
from tests.helpers.gateway import Server, control, open_question, user
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.ports import free_port

STREAMS = ("/sessions/events", "/questions/events", "/sessions/{id}/events", "/v1/code/sessions/{id}/events/stream")


async def open_stream(server: Server, path: str, token: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 24)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    assert b"200 OK" in await reader.readline()
    return reader, writer


def open_idle_socket(server: Server, path: str, token: str) -> socket.socket:
    """A WebSocket whose client has a small buffer and never reads after the handshake."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", server.port))
    head = (
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    made.sendall(head.encode())
    assert b" 101 " in made.recv(1024)
    return made


async def read_to_end(client: ClientConnection) -> None:
    while True:
        await client.recv()


async def clients_of(server: Server, session: str) -> int:
    return int((await server.get(f"/sessions/{session}"))["clients"])


async def see_end(
    server: Server, session: str, streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
) -> None:
    """Wait until the server has ended the streams, and the session has no clients."""
    for reader, writer in streams:
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(1 << 30)
        writer.close()
    while await clients_of(server, session):
        pass


@pytest.mark.parametrize("how", ["revoked", "replaced", "expired"])
async def test_the_end_of_a_token_ends_all_its_connections(tmp_path: Path, how: str) -> None:
    async with Server(tmp_path) as server:
        session = await server.create()
        token = await server.make_token("guest", "prompt", **({"expires_in": 3} if how == "expired" else {}))
        sockets = [await server.connect(path, token) for path in ("/acp", f"/sessions/{session}/ws")]
        streams = [await open_stream(server, path.format(id=session), token) for path in STREAMS]
        with closing(open_idle_socket(server, f"/sessions/{session}/ws?after=0", token)):
            for _ in range(40):  # more than the buffers of both ends hold
                await server.request("POST", f"/sessions/{session}/prompts", {"content": "say " + "much " * 40_000})
            if how != "expired":
                assert (await server.request("DELETE", "/tokens/guest"))[0] == 204
            if how == "replaced":  # the new token has the name of the old one
                await server.make_token("guest", "prompt")
            async with asyncio.timeout(PATIENCE_SECONDS):
                with pytest.raises(websockets.ConnectionClosed, match="unauthorized"):
                    await read_to_end(sockets[0])
                with pytest.raises(websockets.ConnectionClosed):  # it has not read much either
                    await read_to_end(sockets[1])
                await see_end(server, session, streams)


@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_a_connection_that_ended_before_does_not_hide_the_others(tmp_path: Path, how: str) -> None:
    async with Server(tmp_path) as server:
        session = await server.create()
        expiry = {"expires_in": 3} if how == "expired" else {}
        token = await server.make_token("guest", "prompt", quotas={"connections": 2}, **expiry)
        reader, writer = await open_stream(server, "/me", token)  # it stays open after its reply
        await reader.readuntil(b"}")
        streams = [await open_stream(server, f"/sessions/{session}/events", token) for _ in range(2)]
        writer.close()
        assert (await server.request("GET", "/healthz"))[0] == 200  # the server has noticed
        status, reply = await server.request("GET", "/me", token=token)
        assert (status, reply["error"]["code"]) == (429, "quota_exceeded")
        if how == "revoked":
            assert (await server.request("DELETE", "/tokens/guest"))[0] == 204
        async with asyncio.timeout(PATIENCE_SECONDS):
            await see_end(server, session, streams)


async def test_a_stream_ends_with_its_connection_when_requests_wait_behind_it(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session = await server.create()
        _, writer = await open_stream(server, f"/sessions/{session}/events", server.token)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
        await writer.drain()
        assert await clients_of(server, session) == 1
        writer.close()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await clients_of(server, session):  # noticed when something is written
                await server.ask(session, "say Anything.")
        # A connection that is a WebSocket would not tell the stream of its end.
        reader, writer = await open_stream(server, f"/sessions/{session}/events", server.token)
        writer.write(
            b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        async with asyncio.timeout(PATIENCE_SECONDS):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(1 << 30)
            while await clients_of(server, session):
                pass
        writer.close()
        assert not [line for line in server.stderr if "Traceback" in line or "RuntimeError" in line]


@pytest.mark.parametrize("path", ["/ws", "/acp"])
async def test_a_frame_before_the_token_is_short(tmp_path: Path, path: str) -> None:
    async with Server(tmp_path) as server:
        client = await connect(f"ws://127.0.0.1:{server.port}{path}")
        await client.send("x" * 5000)
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await client.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
        # With a token, the same frame is only wrong.
        client = await server.connect("/ws")
        await client.send("x" * 5000)
        assert "not a JSON object" in str(await client.recv())


async def test_parts_of_a_frame_before_the_token_are_few(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        client = await connect(f"ws://127.0.0.1:{server.port}/ws")

        async def make_parts() -> AsyncIterator[str]:
            for _ in range(TOKEN_PARTS + 1):  # with more, the reset of the connection could overtake the reason
                yield ""
            await client.wait_closed()

        with pytest.raises(websockets.ConnectionClosed):
            await client.send(make_parts())
        assert client.close_code == 1009


@pytest.mark.parametrize(("count", "text"), [(500, ""), (5, "x" * 4000)])
async def test_messages_before_the_token_are_few(tmp_path: Path, count: int, text: str) -> None:
    async with Server(tmp_path) as server:
        made = open_idle_socket(server, "/ws", "")
        data = text.encode()
        head = bytes((0x81, 0xFE)) + len(data).to_bytes(2, "big") + bytes(4)
        with closing(made):
            made.settimeout(PATIENCE_SECONDS)
            made.sendall((head + data) * count)
            assert b"too_large" in await asyncio.to_thread(made.recv, 1024)


@pytest.mark.parametrize("sent", ["a header", "many headers", "short headers", "a path", "a trailer", "many requests"])
async def test_a_head_is_short(tmp_path: Path, sent: str) -> None:
    long = "x" * 40_000
    data = {
        "a header": f"GET /healthz HTTP/1.1\r\nHost: localhost\r\nLong: {long}",
        "many headers": "GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + "Some: more\r\n" * 4000,
        "short headers": "POST /sessions HTTP/1.1\r\nContent-Length: 10\r\n" + "a:\r\n" * 200 + "\r\n",
        "many requests": "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50,
        "a path": f"GET /{long}",
        "a trailer": "POST /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
        + "Some: more\r\n" * 4000,
    }[sent]
    async with Server(tmp_path) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(data.encode())
        async with asyncio.timeout(PATIENCE_SECONDS):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):  # the server ends it
                await reader.readexactly(1 << 20)
        writer.close()
        assert not [line for line in server.stderr if "Traceback" in line or "RuntimeError" in line]


async def test_a_body_that_is_not_read_does_not_keep_a_connection(tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text("[limits]\nhead_seconds = 1\n")
    async with Server(tmp_path, "--model", "offline", "--config", str(config)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST /sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
        assert b"401" in await reader.readline()

        async def drip() -> None:
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.1)

        dripping = asyncio.create_task(drip())
        async with asyncio.timeout(PATIENCE_SECONDS):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(1 << 20)
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
        writer.close()


async def test_lines_count_like_requests(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session = await server.create()
        token = await server.make_token("slow", "prompt", quotas={"requests_per_minute": 50})
        client = await server.connect(f"/sessions/{session}/ws", token)
        await client.send("".join(control(str(number), "get_status") for number in range(20)))
        answers = [json.loads(str(await client.recv())) for _ in range(20)]
        refused = [each["response"].get("error_code") for each in answers if each["response"]["subtype"] == "error"]
        assert set(refused) == {"rate_limited"}
        assert len(refused) >= 10

        editor = await server.connect(
            "/acp", await server.make_token("editor", "prompt", quotas={"requests_per_minute": 50})
        )
        for number in range(20):
            await editor.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": "session/list", "params": {}}))
        replies = [json.loads(str(await editor.recv())) for _ in range(20)]
        assert any(each.get("error", {}).get("data") == {"code": "rate_limited"} for each in replies)

        # A client that goes on is disconnected.
        await client.send("".join(control(str(number), "get_status") for number in range(1000)))
        with pytest.raises(websockets.ConnectionClosed, match="rate_limited"):
            await read_to_end(client)


async def test_a_token_without_requests_gets_none(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        token = await server.make_token("none", "view", quotas={"requests_per_minute": 0})
        assert (await server.request("GET", "/me", token=token))[0] == 429


async def test_wrong_tokens_of_one_address_are_limited_whatever_it_forwards(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:

        async def send(address: str) -> int:
            headers = {"Authorization": "Bearer wrong", "X-Forwarded-For": address}
            return (await server.fetch("GET", "/me", None, headers))[0]

        assert 429 in [await send(f"number {number}") for number in range(20)]
        assert 429 in [await send(f"2001:db8::{number}") for number in range(20)]
        assert await send("192.0.2.1") == 401


@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_a_body_after_the_end_of_its_token_is_refused(tmp_path: Path, how: str) -> None:
    async with Server(tmp_path) as server:
        session = await server.create()
        expiry = {"expires_in": 0.5} if how == "expired" else {}
        token = await server.make_token("guest", "prompt", **expiry)
        body = b'{"content": "say Late."}'
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(
            f"POST /sessions/{session}/prompts HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body[:5]
        )
        await writer.drain()
        if how == "revoked":
            await server.request("DELETE", "/tokens/guest")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await server.request("GET", "/me", token=token))[0] == 200:
                pass
            writer.write(body[5:])
            assert b" 401 " in await reader.readline()
        writer.close()


async def test_a_token_can_revoke_itself(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        token = await server.make_token("own", "admin")
        assert (await server.request("DELETE", "/tokens/own", token=token))[0] == 204
        assert (await server.request("GET", "/me", token=token))[0] == 401


@pytest.mark.parametrize("name", ["a/b", "/", "..", ""])
async def test_a_token_has_a_name_that_can_be_revoked(tmp_path: Path, name: str) -> None:
    async with Server(tmp_path) as server:
        status, reply = await server.request("POST", "/tokens", {"name": name, "scopes": ["view"]})
        assert (status, reply["error"]["code"]) == (400, "invalid_body")
        await server.make_token("ann@example.com: phone?", "view")
        assert (await server.request("DELETE", "/tokens/ann%40example.com%3A%20phone%3F"))[0] == 204


async def test_environment_variables_of_a_client_are_refused(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session = await server.create()
        line = {"type": "update_environment_variables", "variables": {"NAME": "value"}}
        path = f"/v1/code/sessions/{session}/events"
        status, reply = await server.request("POST", path, {"events": [{"payload": line}]})
        assert (status, reply["error"]["code"]) == (400, "invalid_line")
        client = await server.connect(f"/sessions/{session}/ws")
        await client.send(json.dumps(line))
        assert "update_environment_variables" in str(await client.recv())


async def test_a_token_has_limits_for_what_is_open(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session = await server.create()
        token = await server.make_token("small", "prompt", quotas={"connections": 2, "bytes": 100_000})
        held = [await server.connect(f"/sessions/{session}/ws", token) for _ in range(2)]
        status, reply = await server.request("GET", "/sessions", token=token)
        assert (status, reply["error"]["code"]) == (429, "quota_exceeded")
        await held.pop().close()
        status, _ = await server.request("GET", "/sessions", token=token)
        assert status == 200
        await held[0].send("x" * 200_000)
        with pytest.raises(websockets.ConnectionClosed, match="quota_exceeded"):
            await held[0].recv()
        status, reply = await server.request("POST", f"/sessions/{session}/prompts", {"content": "x" * 200_000}, token)
        assert (status, reply["error"]["code"]) == (429, "quota_exceeded")
        assert (await server.request("GET", "/sessions", token=token))[0] == 200


def open_idle_request(server: Server, path: str, token: str) -> socket.socket:
    """A request whose client has a small buffer and reads only the first line of the reply."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", server.port))
    made.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    assert b" 200 " in made.recv(1024)
    return made


async def test_replies_that_are_not_read_count_for_the_token_until_the_reader_is_cut(tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text("[limits]\nsend_seconds = 2\n")
    async with Server(tmp_path, "--model", "offline", "--config", str(config)) as server:
        session = await server.create()
        lines = f"/sessions/{session}/lines"
        await server.request("POST", f"/sessions/{session}/prompts", {"content": "say " + "x" * 7_900_000})
        token = await server.make_token("small", "prompt", quotas={"bytes": 1_000_000})
        with closing(open_idle_request(server, f"{lines}?before=2", token)):
            status, reply = await server.request("GET", f"{lines}?before=2", token=token)
            assert (status, reply["error"]["code"]) == (429, "quota_exceeded")
            assert (await server.request("GET", "/me", token=token))[0] == 200  # a short reply always fits
            assert (await server.request("GET", f"{lines}?before=2"))[0] == 200  # others have limits of their own
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (await server.request("GET", f"{lines}?before=2", token=token))[0] != 200:
                    pass


@pytest.mark.parametrize("kind", ["ws", "events"])
async def test_a_viewer_that_does_not_read_is_cut_and_the_others_get_every_line(tmp_path: Path, kind: str) -> None:
    config = tmp_path / "serve.toml"
    config.write_text("[limits]\nsend_seconds = 1\n")
    async with Server(tmp_path, "--model", "offline", "--config", str(config)) as server:
        session = await server.create()
        text = "x\u00e9" * 1_000_000  # parts of the line end within a character
        await server.request("POST", f"/sessions/{session}/prompts", {"content": f"say {text}"})
        token = await server.make_token("small", "prompt", quotas={"bytes": 1_000_000})
        path = f"/sessions/{session}/{kind}?after=0"
        open_idle = open_idle_socket if kind == "ws" else open_idle_request
        with closing(open_idle(server, path, token)), closing(open_idle(server, path, token)):
            client = await server.connect(f"/sessions/{session}/ws?after=0", token)
            async with asyncio.timeout(PATIENCE_SECONDS):
                first = json.loads(await client.recv())
                assert first["message"]["content"] == f"say {text}"
                await client.close()
                while await clients_of(server, session):
                    pass


async def test_replies_to_posted_lines_wait_only_to_a_limit(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session = await server.create()
        path = f"/v1/code/sessions/{session}/events"

        async def post(request_id: str) -> int:
            payload = {"type": "control_request", "request_id": request_id, "request": {"subtype": "nonsense"}}
            status, _ = await server.request("POST", path, {"events": [{"payload": payload}]})
            return status

        assert await post("r" * 100_000) == 202
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await post("next") == 202:  # the engine has not answered the first one
                pass
            reader, writer = await open_stream(server, f"{path}/stream", server.token)
            await reader.readuntil(b"r" * 50_000)
            while await post("read") != 202:
                pass
        writer.close()


async def test_questions_are_listed_by_pages(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        for _ in range(2):
            session = await server.create()
            call = {"file_path": str(server.root / "long"), "content": "x" * 700_000}
            await server.request("POST", f"/sessions/{session}/prompts", {"content": f"call Write {json.dumps(call)}"})
            await open_question(server, session)
        listed = await server.get("/questions")
        assert (len(listed["questions"]), listed["has_more"]) == (1, True)
        assert "has_more" not in await server.get(f"/questions?session={session}")
        reader, writer = await open_stream(server, "/questions/events", server.token)
        async with asyncio.timeout(PATIENCE_SECONDS):
            read = await reader.readuntil(session.encode())
        assert listed["questions"][0]["session"].encode() in read
        writer.close()


async def test_another_tenant_is_served_between_the_lines_of_a_frame(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        greedy = await server.create()
        client = await server.connect(f"/sessions/{greedy}/ws")
        await client.send("".join(control(str(number), "get_status") for number in range(5000)))
        token = await server.make_token("other", "view", tenant="other")
        assert (await server.request("GET", "/sessions", token=token))[0] == 200
        first = json.loads(str(await client.recv()))
        assert first["type"] == "control_response"
        await client.close()


async def test_titles_and_lists_are_bounded(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        token = await server.make_token("ann", "create", tenant="acme")
        for number in range(3):
            body = {"title": f"{number} " + "long " * 100_000}
            _, made = await server.request("POST", "/sessions", body, token)
            await server.create(title="of another tenant")
        page = await server.get("/sessions?limit=2&search=LONG&state=idle", token)
        assert page["total"] == 3
        assert [len(each["title"]) for each in page["sessions"]] == [200, 200]
        _, forked = await server.request("POST", f"/sessions/{made['session_id']}/fork", {"title": "t" * 5000}, token)
        assert "error" in forked or len((await server.get(f"/sessions/{forked['session_id']}", token))["title"]) == 200
        assert (await server.get("/sessions?limit=1&offset=1"))["total"] >= 6


async def test_health_checks_have_a_port_of_their_own(tmp_path: Path) -> None:
    port = free_port()
    async with Server(tmp_path, "--model", "offline", "--health", f"127.0.0.1:{port}"):
        for path, expected in (("/healthz", b"200"), ("/readyz", b"200"), ("/metrics", b"404"), ("/sessions", b"404")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert (await reader.readline()).split()[1] == expected
            writer.close()


# Prompt first, then read.


async def finish_turn(server: Server, session: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await server.get(f"/sessions/{session}"))["turns"] == 0:
            pass


async def last_line(server: Server, session: str) -> int:
    return int((await server.get(f"/sessions/{session}/lines?limit=1"))["last"])


async def read_result(server: Server, session: str, query: str = "") -> tuple[dict[str, Any], list[int]]:
    """The first result of an event stream, and the numbers of the lines up to it."""
    reader, writer = await open_stream(server, f"/sessions/{session}/events{query}", server.token)
    numbers: list[int] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            line = await reader.readline()
            if line.startswith(b"id: "):
                numbers.append(int(line[4:]))
            elif line.startswith(b'data: {"type":"result"'):
                writer.close()
                return json.loads(line[6:]), numbers


@pytest.mark.parametrize("restarts", [False, True])
async def test_who_prompts_and_then_reads_misses_nothing(tmp_path: Path, restarts: bool) -> None:
    async with Server(tmp_path) as server:
        session = await server.create()
        path = f"/sessions/{session}/prompts"
        _, sent = await server.request("POST", path, {"content": "say One."})
        await finish_turn(server, session)
        if restarts:
            await server.kill()
            await server.start()
        # A connection of another token changes nothing, and none that has got other lines.
        other = await server.make_token("other", "view")
        (await open_stream(server, f"/sessions/{session}/events?after=0", other))[1].close()
        client = await server.connect(f"/sessions/{session}/ws?after={await last_line(server, session)}")
        await client.send(user("say Between."))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while '"type":"result"' not in str(await client.recv()):
                pass
        await client.close()

        result, numbers = await read_result(server, session)
        assert (result["result"], numbers[0]) == ("One.", sent["after"])
        _, sent = await server.request("POST", path, {"content": "say Two."})
        assert (await read_result(server, session))[0]["result"] == "Two."
        result, numbers = await read_result(server, session, f"?after={sent['after']}")
        assert (result["result"], numbers[0]) == ("Two.", sent["after"])
        _, again = await server.request("POST", path, {"content": "say Two.", "uuid": sent["uuid"]})
        assert again == sent


async def test_a_socket_after_a_posted_prompt_misses_nothing(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session = await server.create()
        await server.request("POST", f"/sessions/{session}/prompts", {"content": "say Posted."})
        await finish_turn(server, session)
        client = await server.connect(f"/sessions/{session}/ws")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while '"result":"Posted."' not in str(await client.recv()):
                pass
        # From here on, lines are new.
        await client.close()
        client = await server.connect(f"/sessions/{session}/ws")
        await client.send(user("say Sent."))
        async with asyncio.timeout(PATIENCE_SECONDS):
            lines = [str(await client.recv())]
            while '"type":"result"' not in lines[-1]:
                lines.append(str(await client.recv()))
        assert not any("Posted." in line for line in lines)


# Roots, prefixes.


async def test_model_files_of_a_token_stay_below_its_roots(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        (server.root / "own").mkdir()
        script = '[[turn]]\ntext = "From the script."\n'
        for folder in (tmp_path, server.root, server.root / "own"):
            (folder / "script.toml").write_text(script)
        (server.root / "own" / "link.toml").symlink_to(tmp_path / "script.toml")
        token = await server.make_token("ann", "create", "prompt", roots=["own"])
        for model in (f"scripted:{tmp_path}/script.toml", "scripted:../script.toml", "replay:link.toml"):
            for options in ({"model": model}, {"fallback_model": model}):
                body = {"cwd": "own", "options": options}
                status, reply = await server.request("POST", "/sessions", body, token)
                assert (status, reply["error"]["code"]) == (403, "outside_roots"), (model, reply)
        # A colon in the name of a folder does not make two folders of it.
        (server.root / "own" / f"a:{tmp_path}").mkdir(parents=True)
        body = {"cwd": f"own/a:{tmp_path}", "options": {"model": f"scripted:{tmp_path}/script.toml"}}
        status, reply = await server.request("POST", "/sessions", body, token)
        assert (status, reply["error"]["code"]) == (403, "outside_roots"), reply
        body = {"cwd": "own", "options": {"model": "scripted:script.toml"}}
        status, made = await server.request("POST", "/sessions", body, token)
        assert status == 201
        path = f"/sessions/{made['session_id']}"
        asked = {"subtype": "set_model", "model": f"scripted:{tmp_path}/script.toml"}
        status, reply = await server.request("POST", f"{path}/control", asked, token)
        assert status == 400
        assert "outside the roots" in reply["error"]["message"]


@pytest.mark.parametrize("how", ["header", "option", "option, path removed"])
async def test_redirects_and_addresses_keep_the_prefix_of_a_proxy(tmp_path: Path, how: str) -> None:
    options = () if how == "header" else ("--path-prefix", "/team/parley/")
    before = "/team/parley" if how == "option" else ""
    async with Server(tmp_path, "--model", "offline", *options) as server:
        sent = {"Authorization": f"Bearer {server.token}"} | (
            {"X-Forwarded-Prefix": "/team/parley"} if not options else {}
        )
        for path in ("/", "/console"):
            status, headers, _ = await server.fetch("GET", before + path, None, sent)
            assert (status, headers["location"]) == (307, "/team/parley/console/")
        status, _, data = await server.fetch("POST", f"{before}/sessions", {}, sent)
        made = json.loads(data)
        assert made["ws_url"] == f"ws://127.0.0.1:{server.port}/team/parley/sessions/{made['session_id']}/ws"
        status, headers, _ = await server.fetch(
            "GET", "/console", None, {**sent, "X-Forwarded-Prefix": "//evil.example"}
        )
        assert headers["location"] == ("/console/" if not options else "/team/parley/console/")
