"""Requests about logins to MCP servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.engine.control.handlers.mcp import find_server
from parley.errors import NotPossible
from parley.protocol.base import Json
from parley.protocol.messages import panel_requests

if TYPE_CHECKING:
    from parley.engine.session.session import Session


async def mcp_authenticate(session: Session, request: panel_requests.McpAuthenticate) -> Json:
    server = find_server(session, request.serverName)
    redirect_uri = request.redirectUri if isinstance(request.redirectUri, str) else None
    if redirect_uri is not None and "://" not in redirect_uri:
        raise NotPossible(f"redirectUri is not a URL: {redirect_uri!r:.200}")
    return await session.servers.logins().start(server, redirect_uri)


async def mcp_oauth_callback_url(session: Session, request: panel_requests.McpOauthCallbackUrl) -> Json:
    await session.servers.logins().accept(find_server(session, request.serverName), request.callbackUrl)
    return {}


async def mcp_clear_auth(session: Session, request: panel_requests.McpClearAuth) -> Json:
    await session.servers.logins().clear(find_server(session, request.serverName))
    return {}
