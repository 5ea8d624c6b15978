"""What MCP servers need of the user and the client: answers to their requests, logins, and handshakes made in advance.

Servers ask the user (`elicitation/create`), and for the roots (`roots/list`).

A user logs in to a server at the request of the client. At most one login per server is open. When it is complete, the
server is connected again; the client is informed by the usual status messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any

import msgspec

from parley.engine.hooks.registry import HookRegistry
from parley.engine.session.journal import Journal
from parley.engine.session.outbox import Outbox
from parley.errors import NotPossible, SessionError
from parley.host import HostError, HostGone
from parley.jsonrpc import INVALID_PARAMS, RpcError
from parley.mcp.base import ConnectionLost, LoginRefused, ServerLogin, ServerSources, ServerTransport
from parley.mcp.content import clean, clean_value
from parley.mcp.host_transport import Manifest, ReplayTransport, parse_manifest
from parley.mcp.server_connection import McpServer, method_not_found
from parley.protocol.base import UNSET, Json, UnsetType, convert
from parley.protocol.messages.occasional import ElicitationComplete
from parley.protocol.messages.requests import Elicitation, ElicitationAnswer

ACTIONS = ("accept", "decline", "cancel")
DISPLAY_KEY = "anthropic/permissionDisplay"
DISPLAY_FIELDS = {"title": "title", "display_name": "displayName", "description": "description"}
"""How a server can title its question: our field, and its key in `_meta`."""
MAX_DISPLAY_CHARS = 500


class ServerRequests:
    """Answers the requests and notifications of one server."""

    capabilities: Json = {"elicitation": {"form": {}, "url": {}}, "roots": {}}

    def __init__(
        self,
        cwd: str,
        outbox: Outbox,
        journal: Journal,
        waiting: Callable[[], AbstractContextManager[None]],
        hooks: HookRegistry,
        on_change: Callable[[McpServer], None],
    ) -> None:
        self._cwd = cwd
        self._outbox = outbox
        self._journal = journal
        self._waiting = waiting
        """A context in which the session reports `requires_action`."""
        self._hooks = hooks
        self.on_change = on_change

    async def on_request(self, server: McpServer, method: str, params: Json) -> Json:
        """Raises RpcError."""
        if method == "elicitation/create":
            return await self._elicit(server, params)
        if method == "roots/list":
            return {"roots": [{"uri": f"file://{self._cwd}", "name": "working directory"}]}
        raise method_not_found(method)

    def on_notification(self, server: McpServer, method: str, params: Json) -> None:
        if method == "notifications/elicitation/complete" and isinstance(params.get("elicitationId"), str):
            self._outbox.send(
                ElicitationComplete(mcp_server_name=server.spec.name, elicitation_id=params["elicitationId"])
            )

    async def _elicit(self, server: McpServer, params: Json) -> Json:
        """The user's answer. A missing or invalid answer counts as `cancel`."""
        url = text_or_unset(params.get("url"))
        if isinstance(url, str) and not url.startswith(("http://", "https://")):
            raise RpcError(INVALID_PARAMS, "only http and https URLs are shown to users")
        if isinstance(url, str) and clean(url) != url:
            raise RpcError(INVALID_PARAMS, "a URL with invisible characters is not shown to users")
        schema = params.get("requestedSchema")
        schema = clean_value(schema) if isinstance(schema, dict) else UNSET
        question = Elicitation(
            mcp_server_name=server.spec.name,
            message=clean(str(params.get("message", ""))),
            mode=text_or_unset(params.get("mode")),
            url=url,
            elicitation_id=text_or_unset(params.get("elicitationId")),
            requested_schema=schema,
            property_order=list_properties(schema),
            **read_display(params.get("_meta")),
        )
        # A hook may answer instead of the user, and replace what the user answers.
        answer = await self._hooks.events.answer_elicitation(question)
        if answer is None:
            answer = await self._ask_client(question)
        return await self._hooks.events.check_elicitation(question, answer)

    async def _ask_client(self, question: Elicitation) -> Json:
        try:
            answer: ElicitationAnswer = convert(await self._request_recorded(question), ElicitationAnswer)
        except (HostGone, HostError, SessionError, msgspec.ValidationError):
            return {"action": "cancel"}
        if answer.action not in ACTIONS:
            return {"action": "cancel"}
        if answer.action != "accept" or not isinstance(answer.content, dict):
            return {"action": answer.action}
        return {"action": answer.action, "content": {**read_defaults(question.requested_schema), **answer.content}}

    async def _request_recorded(self, question: Elicitation) -> Any:
        """Send the question and record it while it is open. Raises HostGone, HostError, SessionError."""
        request_id, append = self._outbox.clock.new_uuid(), self._journal.append_event
        append(
            "elicitation", {"request_id": request_id, "server": question.mcp_server_name, "message": question.message}
        )
        try:
            with self._waiting():
                return await self._outbox.host.request(question, request_id)
        finally:
            # Also after a cancellation: only the end of the process leaves the record open.
            with suppress(SessionError):
                append("elicited", {"request_id": request_id})


def read_display(meta: Any) -> Json:
    """How the server wants the question to be shown."""
    display = meta.get(DISPLAY_KEY) if isinstance(meta, dict) else None
    if not isinstance(display, dict):
        return {}
    return {
        field: clean(display[key])[:MAX_DISPLAY_CHARS]
        for field, key in DISPLAY_FIELDS.items()
        if isinstance(display.get(key), str)
    }


def list_properties(schema: Json | UnsetType) -> list[str] | UnsetType:
    """The fields of a form in the server's order, for clients that lose the order of keys."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return list(properties) if isinstance(properties, dict) else UNSET


def read_defaults(schema: Json | UnsetType) -> Json:
    """The values of the fields of a form that are not filled in."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    fields = properties if isinstance(properties, dict) else {}
    return {name: field["default"] for name, field in fields.items() if isinstance(field, dict) and "default" in field}


def text_or_unset(value: Any) -> str | UnsetType:
    return value if isinstance(value, str) else UNSET


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


class ParkedManifests:
    """Each manifest is for the first connection that follows its request."""

    def __init__(self) -> None:
        self._parked: dict[str, Manifest] = {}

    def park(self, entries: Json, names: list[str], servers: Mapping[str, McpServer]) -> dict[str, str]:
        """Keep the manifests of these servers. Returns what became of each entry."""
        self._parked.clear()
        return {name: self._park(name, entries[name], servers.get(name)) for name in entries if name in names}

    def _park(self, name: str, entry: object, server: McpServer | None) -> str:
        manifest = parse_manifest(entry)
        if manifest is None:
            return "malformed"
        if server is None or server.spec.kind != "sdk":
            return "not_honoured"
        if server.is_started:
            return "already_connected" if server.status == "connected" else "not_honoured"
        if not manifest.has_our_version:
            return "protocol_version_mismatch"
        self._parked[name] = manifest
        return "parked"

    def wrap(self, name: str, transport: ServerTransport) -> ServerTransport:
        """The transport of a server, with its manifest if there is one."""
        manifest = self._parked.pop(name, None)
        return transport if manifest is None else ReplayTransport(transport, manifest)
