"""What an operator does with a server: configuration, certificates, logs, a proxy in front of it."""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.helpers.forked import run_parley
from tests.helpers.gateway import Server, following, read_until, user
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.tls import make_certificate

OFFLINE = ("--model", "offline")


async def wait_for_line(server: Server, text: str, count: int = 1) -> None:
    """Wait until stderr has so many lines with a text."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while sum(text in line for line in server.stderr) < count:  # noqa: ASYNC110  # it is a process
            await asyncio.sleep(0.02)


async def reload(server: Server) -> None:
    before = sum("reloaded" in line for line in server.stderr)
    assert server.process is not None
    server.process.send_signal(signal.SIGHUP)
    await wait_for_line(server, "reloaded", before + 1)


def send(
    server: Server,
    path: str,
    headers: dict[str, str],
    context: ssl.SSLContext | None = None,
    *,
    method: str = "GET",
    body: object = None,
) -> tuple[int, Any, bytes]:
    """The status, headers and body of a response."""
    address: Any = ("127.0.0.1", server.port)
    more: Any = {"timeout": PATIENCE_SECONDS}
    connection = (
        HTTPConnection(*address, **more) if context is None else HTTPSConnection(*address, **more, context=context)
    )
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


async def test_sighup_reads_the_configuration_the_token_and_the_certificate(tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text('allow_origin = ["https://one.example"]\n')
    certificate, key = make_certificate(tmp_path, "first")
    first = ssl.create_default_context(cafile=certificate)
    options = ("--config", str(config), "--tls-cert", certificate, "--tls-key", key)
    async with Server(tmp_path, *OFFLINE, *options) as server:
        assert server.stderr[-1] == f"listening on https://127.0.0.1:{server.port}\n"
        old = f"Bearer {server.token}"

        def status(context: ssl.SSLContext, token: str, **headers: str) -> int:
            return send(server, "/sessions", {"Authorization": token, **headers}, context)[0]

        assert status(first, old, Origin="https://one.example") == 200
        assert status(first, old, Origin="https://two.example") == 403
        assert status(first, old, Host="agents.example") == 421

        made = send(
            server,
            "/tokens",
            {"Authorization": old},
            first,
            method="POST",
            body={"name": "ann", "scopes": ["create", "prompt"]},
        )
        of_ann, of_admin = [
            await connect(f"wss://127.0.0.1:{server.port}/ws", ssl=first, additional_headers={"Authorization": token})
            for token in (f"Bearer {json.loads(made[2])['token']}", old)
        ]
        server.token_file.write_text("another-token-of-the-administrator\n")
        config.write_text('allow_origin = ["https://two.example"]\nallow_host = ["agents.example"]\n')
        second = ssl.create_default_context(cafile=make_certificate(tmp_path, "second")[0])
        for suffix in ("pem", "key"):
            (tmp_path / f"second.{suffix}").replace(tmp_path / f"first.{suffix}")
        await reload(server)

        new = f"Bearer {server.token}"
        with pytest.raises(ssl.SSLCertVerificationError):
            status(first, new)
        assert status(second, old) == 401
        assert status(second, new, Origin="https://two.example") == 200
        assert status(second, new, Origin="https://one.example") == 403
        assert status(second, new, Host="agents.example") == 200
        with pytest.raises(ConnectionClosed, match="unauthorized"):
            await of_admin.recv()
        await of_ann.send(user("say Still here."))
        assert (await read_until(of_ann, "result"))[-1]["result"] == "Still here."

        # What is wrong changes nothing.
        for path, text, reason in (
            (config, "alow_origin = []\n", "unknown field `alow_origin`"),
            (config, "limits = 7", "Expected `object`"),
            (tmp_path / "first.pem", "not a certificate", "cannot load the certificate"),
            (server.token_file, "short", "at least 16 characters"),
        ):
            right = path.read_text()
            path.write_text(text)
            assert server.process is not None
            server.process.send_signal(signal.SIGHUP)
            await wait_for_line(server, reason)
            assert status(second, new, Origin="https://two.example") == 200
            path.write_text(right)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--tls-cert", "missing.pem"), "cannot load the certificate missing.pem"),
        (("--tls-key", "missing.key"), "option '--tls-key' needs '--tls-cert'"),
        (("--config", "missing.toml"), "cannot read the configuration missing.toml: No such file"),
        (("--log-format", "xml"), "invalid log-format 'xml' (choose from text, json)"),
    ],
)
def test_a_wrong_configuration_does_not_start(tmp_path: Path, options: tuple[str, ...], text: str) -> None:
    argv = ["serve", "--listen", "127.0.0.1:0", "--token-file", str(tmp_path / "token"), *options]
    done = run_parley(argv, cwd=tmp_path, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
    assert done.returncode != 0
    assert done.stdout == ""
    assert text in done.stderr


async def test_the_log_has_a_json_object_for_every_event(tmp_path: Path) -> None:
    async with Server(tmp_path, *OFFLINE, "--log-format", "json") as server:
        session = await server.create()
        token = await server.make_token("ann", "prompt")
        socket = await server.connect(f"/sessions/{session}/ws?after=0", token)
        await socket.send(user("say Hi."))
        await read_until(socket, "result")
        await socket.close()
        await server.request("GET", "/sessions?token=secret-in-a-query", token="wrong-token-of-somebody")
        await wait_for_line(server, '"event":"connection"')
        assert server.process is not None
        server.process.send_signal(signal.SIGHUP)
        await wait_for_line(server, "reloaded")
        assert await server.kill(signal.SIGTERM) == 0

        lines = [json.loads(line) for line in server.stderr]
        assert all(line["at"].endswith("Z") and line["level"] in ("info", "warning", "error") for line in lines)
        events = {line["event"]: line for line in lines}
        assert list(events) == [
            *("token", "listening", "request", "engine_start", "connection"),
            *("reload", "draining", "engine_end", "stopped"),
        ]
        assert events["listening"]["message"] == f"listening on {server.url}"
        made = next(line for line in lines if line.get("method") == "POST" and line["path"] == "/sessions")
        assert (made["status"], made["who"], made["address"]) == (201, "admin", "127.0.0.1")
        connection = events["connection"]
        assert (connection["path"], connection["who"]) == (f"/sessions/{session}/ws", "ann")
        refused = next(line for line in lines if line.get("status") == 401)
        assert (refused["path"], refused["who"]) == ("/sessions", None)
        whole = "".join(server.stderr)
        for secret in (server.token, token, "secret-in-a-query", "wrong-token", "say Hi"):
            assert secret not in whole


async def test_a_proxy_says_where_a_client_comes_from(tmp_path: Path) -> None:
    options = (*OFFLINE, "--allow-host", "agents.example", "--log-format", "json")
    async with Server(tmp_path, *options) as server:
        headers = {
            "Authorization": f"Bearer {server.token}",
            "Host": "agents.example",
            "X-Forwarded-For": "203.0.113.9",
            "X-Forwarded-Proto": "https",
            "Origin": "https://agents.example",
        }

        def create() -> Any:
            return json.loads(send(server, "/sessions", headers, method="POST")[2])

        made = await asyncio.to_thread(create)
        assert made["ws_url"] == f"wss://agents.example/sessions/{made['session_id']}/ws"
        await wait_for_line(server, '"address":"203.0.113.9"')
    other = tmp_path / "other"
    other.mkdir()
    async with Server(other, *options, "--trust-proxy", "192.0.2.1") as server:
        headers["Authorization"] = f"Bearer {server.token}"
        made = await asyncio.to_thread(create)
        assert made["ws_url"].startswith("ws://")
        assert not any("203.0.113.9" in line for line in server.stderr)


async def test_every_reply_forbids_what_a_browser_could_do_with_it(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        for path in ("/healthz", "/openapi.json", "/sessions", "/nope"):
            _, headers, _ = await asyncio.to_thread(send, server, path, {})
            assert headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Cache-Control"] == "no-store"
            assert headers["Set-Cookie"] is None
            assert headers["Server"] is None
        # A page of another site cannot make a browser create a session, with or without a token.
        evil = {"Origin": "https://evil.example"}
        for sent in (evil, {**evil, "Authorization": f"Bearer {server.token}"}):
            status, headers, _ = await asyncio.to_thread(send, server, "/sessions", sent, method="POST")
            assert (status, headers["Access-Control-Allow-Origin"]) == (403, None)
        assert (await server.request("GET", "/sessions"))[1]["sessions"] == []


async def test_a_turn_that_takes_too_long_is_interrupted_at_the_end(tmp_path: Path) -> None:
    async with Server(tmp_path, *OFFLINE, "--drain-seconds", "1") as server:
        session = await server.create()
        async with following(server, session) as viewer:
            await server.request("POST", f"/sessions/{session}/prompts", {"content": "wait 600\nsay Late."})
            await viewer.wait_for(lambda: any('"subtype":"init"' in line for _, line in viewer.lines))
            assert await server.kill(signal.SIGTERM) == 0
            await server.start()
            await viewer.wait_for(viewer.results)
            assert viewer.results()[0]["is_error"]
        assert (await server.ask(session, "say Next."))["result"] == "Next."
