"""Logins to an MCP server: a real authorization code flow on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.oauth_server import LoginServer, login_server
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.session import Json, SessionHarness

HELLO = "[[turn]]\ntext = 'Hello.'\n"
ASKS = "[[turn]]\ntools = [{ name = 'mcp__login__secret', id = 't1', input = {} }]\n" + HELLO


@pytest.fixture
def server() -> Iterator[LoginServer]:
    with login_server() as running:
        yield running


def make_harness(folder: Path, server: LoginServer, script: str = HELLO) -> SessionHarness:
    config = json.dumps({"mcpServers": {"login": {"type": "http", "url": server.url}, "own": {"command": "true"}}})
    return SessionHarness(folder, script, mcp_config=(config,), allowed_tools=("mcp__login__secret",))


def answer(line: Json) -> Json:
    assert line["response"]["subtype"] == "success", line
    found: Json = line["response"].get("response", {})
    return found


def error(line: Json) -> str:
    assert line["response"]["subtype"] == "error", line
    return str(line["response"]["error"])


async def status(harness: SessionHarness) -> str:
    servers = answer(await harness.request("mcp_status"))["mcpServers"]
    return str(next(server["status"] for server in servers if server["name"] == "login"))


async def log_in(harness: SessionHarness, server: LoginServer) -> None:
    """Log in with a redirect URI of the client."""
    begun = answer(await harness.request("mcp_authenticate", serverName="login", redirectUri="app://done"))
    assert (begun["requiresUserAction"], begun["redirectScheme"]) == (True, "custom")
    redirected = await asyncio.to_thread(server.approve, begun["authUrl"])
    assert redirected.startswith("app://done?code=")
    assert answer(await harness.request("mcp_oauth_callback_url", serverName="login", callbackUrl=redirected)) == {}


async def test_a_login_with_a_redirect_of_the_client_connects_the_server(tmp_path: Path, server: LoginServer) -> None:
    async with make_harness(tmp_path, server, ASKS) as harness:
        await harness.request("initialize")
        await log_in(harness, server)
        assert await status(harness) == "connected"
        harness.prompt("The secret?")
        await harness.receive("result")
    assert "42" in str(next(harness.messages("user"))["message"])
    assert not any(token in harness.raw.decode() for token in server.tokens)


async def test_a_login_through_the_listener_connects_the_server(tmp_path: Path, server: LoginServer) -> None:
    async with make_harness(tmp_path, server) as harness:
        await harness.request("initialize")
        begun = answer(await harness.request("mcp_authenticate", serverName="login"))
        assert begun["redirectScheme"] == "localhost"
        redirected = await asyncio.to_thread(server.approve, begun["authUrl"])
        assert f":{begun['callbackPort']}/callback" in redirected

        assert b"login is complete" in await asyncio.to_thread(open_page, redirected)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await status(harness) != "connected":
                """The server connects in the background; every request gives it a chance."""


async def test_the_next_session_uses_the_login_until_it_is_cleared(tmp_path: Path, server: LoginServer) -> None:
    async with make_harness(tmp_path, server) as harness:
        await log_in(harness, server)
    stored = tmp_path / "home" / ".claude" / "mcp-logins.json"
    assert os.stat(stored).st_mode & 0o777 == 0o600

    async with make_harness(tmp_path, server) as harness:
        await harness.request("mcp_reconnect", serverName="login")
        assert await status(harness) == "connected"
        assert answer(await harness.request("mcp_clear_auth", serverName="login")) == {}
        assert await status(harness) == "needs-auth"
    assert not any(token in stored.read_text() for token in server.tokens)


async def test_an_expired_token_is_refreshed_at_its_issuer_in_the_next_session(
    tmp_path: Path, server: LoginServer
) -> None:
    async with make_harness(tmp_path, server) as harness:
        await log_in(harness, server)
    stored = tmp_path / "home" / ".claude" / "mcp-logins.json"
    [(key, login)] = json.loads(stored.read_text()).items()
    stored.write_text(json.dumps({key: {**login, "expires_at": 1}}))
    server.tokens.clear()

    async with make_harness(tmp_path, server) as harness:
        await harness.request("mcp_reconnect", serverName="login")
        assert await status(harness) == "connected"
    assert any(token in stored.read_text() for token in server.tokens)


async def test_a_server_that_refuses_only_calls_needs_a_login_too(tmp_path: Path, server: LoginServer) -> None:
    server.open_methods |= {"initialize", "notifications/initialized", "tools/list"}
    async with make_harness(tmp_path, server) as harness:
        await harness.request("mcp_reconnect", serverName="login")
        assert await status(harness) == "connected"
        while await status(harness) != "needs-auth":
            await harness.request("mcp_call", tool="mcp__login__secret", arguments={})
        await log_in(harness, server)
        assert await status(harness) == "connected"
        assert "42" in json.dumps(answer(await harness.request("mcp_call", tool="mcp__login__secret", arguments={})))


async def test_a_wrong_callback_is_refused_and_the_login_stays_open(tmp_path: Path, server: LoginServer) -> None:
    async with make_harness(tmp_path, server) as harness:
        begun = answer(await harness.request("mcp_authenticate", serverName="login", redirectUri="app://done"))
        for address, reason in {
            "nonsense": "no authorization code",
            "app://done?code=x&state=other": "belongs to another login",
        }.items():
            told = await harness.request("mcp_oauth_callback_url", serverName="login", callbackUrl=address)
            assert reason in error(told)
        redirected = await asyncio.to_thread(server.approve, begun["authUrl"])
        told = await harness.request("mcp_oauth_callback_url", serverName="login", callbackUrl=redirected)
        assert answer(told) == {}


async def test_a_user_who_declines_ends_the_login(tmp_path: Path, server: LoginServer) -> None:
    async with make_harness(tmp_path, server) as harness:
        await harness.request("mcp_authenticate", serverName="login", redirectUri="app://done")
        address = "app://done?error=access_denied&error_description=not+today"
        told = await harness.request("mcp_oauth_callback_url", serverName="login", callbackUrl=address)
        assert "not today" in error(told)
        told = await harness.request("mcp_oauth_callback_url", serverName="login", callbackUrl=address)
        assert error(told) == "No login is in progress for the server: login"


async def test_only_servers_at_a_url_have_a_login(tmp_path: Path, server: LoginServer) -> None:
    async with make_harness(tmp_path, server) as harness:
        for subtype in ("mcp_authenticate", "mcp_clear_auth"):
            assert error(await harness.request(subtype, serverName="nobody")) == "Server not found: nobody"
            assert "only for servers with a URL" in error(await harness.request(subtype, serverName="own"))


def open_page(address: str) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(address) as page:
        found: bytes = page.read()
        return found
