"""Logins of the user to MCP servers, at the request of the client.

At most one login per server is open. When it is complete, the server is connected again; the client is informed by the
usual status messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from parley.errors import NotPossible
from parley.mcp.base import ConnectionLost, LoginRefused, ServerLogin, ServerSources
from parley.mcp.server_connection import McpServer
from parley.protocol.base import Json

REMOTE = ("http", "sse")


class Logins:
    def __init__(self, sources: ServerSources, warn: Callable[[str], None]) -> None:
        self._sources = sources
        self._warn = warn
        self._open: dict[str, ServerLogin] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """Each waits for the end of a login."""

    async def start(self, server: McpServer, redirect_uri: str | None) -> Json:
        """Start a login in place of one that is open. Raises NotPossible."""
        name, start = server.spec.name, self._sources.start_login
        check_remote(server)
        if server.spec.has_credentials:
            raise NotPossible(f"{name}: the server is configured with `oauth`, so Parley logs in without the user")
        if start is None:
            raise NotPossible(f"{name}: logins are not available in this session")
        await self._cancel(name)
        try:
            login = await start(server.spec, redirect_uri, server.challenge)
        except (LoginRefused, ConnectionLost) as exc:
            raise NotPossible(f"{name}: {exc}", "mcp_login_failed") from None
        if login.address is None:
            await server.reconnect()
            return {"requiresUserAction": False}
        self._open[name] = login
        self._tasks[name] = asyncio.create_task(self._finish(server, login))
        answer: Json = {
            "authUrl": login.address,
            "requiresUserAction": True,
            "callbackExpected": True,
            "redirectScheme": "localhost" if login.port is not None else "custom",
            "state": login.state,
        }
        return answer if login.port is None else {**answer, "callbackPort": login.port}

    async def accept(self, server: McpServer, callback_url: str) -> None:
        """Take the address of the redirect, and wait until the login is complete. Raises NotPossible."""
        name = server.spec.name
        login, task = self._open.get(name), self._tasks.get(name)
        if login is None or task is None:
            raise NotPossible(f"No login is in progress for the server: {name}")
        try:
            login.accept(callback_url)
        except LoginRefused as exc:
            raise NotPossible(f"{name}: {exc}. The login is still open.") from None
        try:
            await login.done
        except (LoginRefused, ConnectionLost) as exc:
            raise NotPossible(f"{name}: {exc}", "mcp_login_failed") from None
        await asyncio.shield(task)

    async def clear(self, server: McpServer) -> None:
        """Delete the tokens of a server, and connect again without them. Raises NotPossible."""
        check_remote(server)
        await self._cancel(server.spec.name)
        if self._sources.forget_login is not None:
            try:
                await self._sources.forget_login(server.spec)
            except LoginRefused as exc:
                raise NotPossible(f"{server.spec.name}: {exc}") from None
        if server.status != "disabled":
            await server.reconnect()

    async def close(self) -> None:
        for name in list(self._open):
            await self._cancel(name)

    async def _finish(self, server: McpServer, login: ServerLogin) -> None:
        try:
            await login.done
            await server.reconnect()
        except (LoginRefused, ConnectionLost) as exc:
            self._warn(f"MCP server {server.spec.name!r}: {exc}")
        finally:
            if self._open.get(server.spec.name) is login:
                del self._open[server.spec.name]

    async def _cancel(self, name: str) -> None:
        login, task = self._open.pop(name, None), self._tasks.pop(name, None)
        if login is not None:
            await login.cancel()
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def check_remote(server: McpServer) -> None:
    """Raises NotPossible."""
    if server.spec.kind not in REMOTE or server.spec.problem:
        raise NotPossible(
            f"{server.spec.name}: a login is possible only for servers with a URL, and this is a "
            f"{server.spec.kind} server"
        )
