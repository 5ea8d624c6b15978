"""The lifecycle of one MCP server.

    pending -> connected | failed | needs-auth              within McpTimeouts.connect_seconds
    connected -> pending (lost) -> connected | failed       after a few retries
    disabled                                                at the user's request

Every change is reported to `ServerListener.on_change` with its reason.

Which revision of MCP the server speaks is found out when it connects (client.py). What was found is tried first when it
connects again, because finding out takes time if the server ignores `server/discover` or ends.

Lists are refreshed after `list_changed` notifications (`ListRefresher`): one refresh at a time, and no notification is
lost. A server may notify very often, during a refresh, or before it is connected. Notifications that arrive together
cause one refresh; one that arrives during a refresh causes another.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from parley.errors import ToolError
from parley.jsonrpc import METHOD_NOT_FOUND, RpcError
from parley.mcp.base import Challenge, ConnectionLost, McpTimeouts, NeedsAuth, ServerSpec, ServerTransport, Status
from parley.mcp.client import McpClient, Progress, RequestTimeout, as_object, run_rounds
from parley.mcp.content import clean, clean_value, qualify
from parley.protocol.base import Json

MAX_TEXT_CHARS = 2_000
"""The limit for reasons and stderr in reports."""
CHANGES = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
}
HANDSHAKE_FIRST = ("sdk", "sse")
"""Kinds of servers that are not probed unless they reject the handshake.

Clients that run servers expect it as the first message, and all that it lacks can pass through the control protocol.
The transport `sse` belongs to old revisions.
"""
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
RESOURCES_CHANGED = "notifications/resources/"
LISTEN_DELAYS_SECONDS = (1.0, 60.0)
"""The first and the longest pause before changes are subscribed to again."""
PAUSE_SECONDS = 0.1
"""Pause between refreshes, for servers that notify whenever they are listed."""
SKILLS_EXTENSION = "io.modelcontextprotocol/skills"
DIRECTORY_TYPE = "inode/directory"
CHILD_FIELDS = ("uri", "name", "mimeType")
RESOURCE_FIELDS = ("uri", "name", "title", "mimeType", "description", "size")


class ServerListener(Protocol):
    """Receives events of a server."""

    def on_change(self, server: McpServer) -> None:
        """The status, tools or prompts of the server changed."""

    async def on_request(self, server: McpServer, method: str, params: Json) -> Json:
        """A request from the server. Raises RpcError."""

    def on_notification(self, server: McpServer, method: str, params: Json) -> None:
        """A notification other than `list_changed`."""


class SerialQueue:
    """Runs steps one after the other. A started step finishes even if its caller is cancelled."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._steps: set[asyncio.Task[None]] = set()

    async def run(self, step: Coroutine[Any, Any, None]) -> None:
        async def in_turn() -> None:
            async with self._lock:
                await step

        task = asyncio.get_running_loop().create_task(in_turn())
        self._steps.add(task)
        task.add_done_callback(self._steps.discard)
        await asyncio.shield(task)


class ListRefresher:
    def __init__(self, refresh: Callable[[str], Awaitable[None]]) -> None:
        self._refresh = refresh
        self._is_open = False
        self._stale: set[str] = set()
        """Lists that changed and are not refreshed yet."""
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def mark_stale(self, name: str) -> None:
        self._stale.add(name)
        if self._is_open and name not in self._tasks:
            self._tasks[name] = asyncio.get_running_loop().create_task(self._work(name))

    def open(self) -> None:
        """Start refreshing, including lists that changed before."""
        self._is_open = True
        for name in tuple(self._stale):
            self.mark_stale(name)

    def tasks(self) -> list[asyncio.Task[None]]:
        """The running refreshes."""
        return list(self._tasks.values())

    def close(self) -> None:
        self._is_open = False
        self._stale.clear()
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    async def _work(self, name: str) -> None:
        await asyncio.sleep(0)  # combine notifications that arrive together
        while True:
            self._stale.discard(name)
            await self._refresh(name)
            if name not in self._stale:
                break
            await asyncio.sleep(PAUSE_SECONDS)
        del self._tasks[name]


class McpServer:
    def __init__(
        self,
        spec: ServerSpec,
        open_transport: Callable[[], Awaitable[ServerTransport]],
        listener: ServerListener,
        timeouts: McpTimeouts,
        capabilities: Json,
    ) -> None:
        self.spec = spec
        self.status: Status = "pending"
        self.reason = ""
        """Why it has this status."""
        self.stderr = ""
        """The end of its stderr when it failed."""
        self.tools: list[Json] = []
        self.prompts: list[Json] = []
        self.settled = asyncio.Event()
        """Set unless it is connecting."""
        self._open_transport = open_transport
        self._listener = listener
        self._timeouts = timeouts
        self._capabilities = capabilities
        self._client: McpClient | None = None
        self._is_old = spec.kind in HANDSHAKE_FIRST
        """Whether the handshake is tried first."""
        self.transport: ServerTransport | None = None
        self._task: asyncio.Task[None] | None = None
        self._loss: asyncio.Future[ConnectionLost] | None = None
        self._refresher = ListRefresher(self._refresh)
        self._queue = SerialQueue()
        self._is_closed = False

    @property
    def prefix(self) -> str:
        """The prefix of its tool names."""
        return qualify(self.spec.name, "")

    @property
    def info(self) -> Json:
        return self._client.info if self._client is not None and self.status == "connected" else {}

    @property
    def instructions(self) -> str:
        return self._client.instructions if self._client is not None and self.status == "connected" else ""

    @property
    def challenge(self) -> Challenge | None:
        """How it refused the last request that needs a login."""
        return None if self.transport is None else self.transport.challenge

    def has(self, what: str) -> bool:
        """Whether it is connected and offers `tools`, `prompts` or `resources`."""
        return self.status == "connected" and self._client is not None and what in self._client.capabilities

    @property
    def has_directories(self) -> bool:
        """Whether it lists the children of directories among its resources."""
        extensions = self._client.capabilities.get("extensions") if self.has("resources") and self._client else None
        skills = extensions.get(SKILLS_EXTENSION) if isinstance(extensions, dict) else None
        return isinstance(skills, dict) and skills.get("directoryRead") is True

    @property
    def is_started(self) -> bool:
        """Whether it is connecting or connected, or has failed."""
        return self._task is not None

    def start(self) -> None:
        """Start connecting, unless already started."""
        if self._task is None and self.status != "disabled":
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def reconnect(self) -> None:
        """Reconnect, and wait for the result."""
        await self._queue.run(self._restart())
        await self.settled.wait()

    async def enable(self) -> None:
        """Connect unless connected, and wait for the result."""
        await self._queue.run(self._restart(unless_connected=True))
        await self.settled.wait()

    async def disable(self) -> None:
        await self._queue.run(self._disable())

    async def close(self) -> None:
        """Close for good. Nothing is reported afterwards, and waiters are released."""
        self._is_closed = True
        await self._queue.run(self._end())
        self.status, self.reason = "disabled", "removed"
        self.settled.set()

    async def _restart(self, *, unless_connected: bool = False) -> None:
        if unless_connected and self.status == "connected":
            return
        await self._end()
        if not self._is_closed:
            self._set_status("pending")
            self.start()

    async def _disable(self) -> None:
        await self._end()
        if not self._is_closed:
            self._set_status("disabled")

    async def _run(self) -> None:
        if self.spec.problem:
            self._set_status("failed", self.spec.problem)
            return
        await self._connect()
        delays = list(self._timeouts.retry_delays_seconds)
        loop = asyncio.get_running_loop()
        was_refused = False
        while self._loss is not None:
            since = loop.time()
            loss = await self._loss
            await self._disconnect()
            if loop.time() - since > self._timeouts.stable_seconds:
                delays, was_refused = list(self._timeouts.retry_delays_seconds), False
            if was_refused and isinstance(loss, NeedsAuth):
                # It accepts connections, but no calls. A token that another session has refreshed would work by now.
                self._set_status("needs-auth", str(loss))
                return
            was_refused = isinstance(loss, NeedsAuth)
            await self._retry(str(loss), delays)

    async def _retry(self, reason: str, delays: list[float]) -> None:
        """Retry after each remaining delay."""
        while delays:
            self._set_status("pending", f"{reason}; reconnecting")
            await asyncio.sleep(delays.pop(0))
            await self._connect(last=not delays)
            if self.status != "pending":
                return
            reason = self.reason
        self._set_status("failed", f"{reason}; giving up")

    async def _connect(self, last: bool = True) -> None:
        """Try once. Unless it is the last try, a failure does not change the status."""
        status: Status = "failed"
        try:
            async with asyncio.timeout(self._timeouts.connect_seconds):
                await self._handshake()
            self._set_status("connected")
            self._refresher.open()
            return
        except TimeoutError:
            reason = f"the server did not answer within {self._timeouts.connect_seconds:g} s"
        except NeedsAuth as exc:
            status, reason = "needs-auth", str(exc)
        except ConnectionLost as exc:
            reason = str(exc)
        except RpcError as exc:
            reason = f"the server rejected the handshake: {exc}"
        except Exception as exc:
            # An unexpected error fails this server, not the session.
            reason = f"internal error: {type(exc).__name__}: {exc}"
        await self._disconnect()
        if last or status == "needs-auth":
            self._set_status(status, reason)
        else:
            self.reason = reason

    async def _handshake(self) -> None:
        """Raises ConnectionLost or RpcError."""
        try:
            client = await self._open_client(self._is_old)
        except NeedsAuth:
            raise
        except ConnectionLost:
            # Some old servers end when the first request is not `initialize`.
            if self._is_old or self._client is None:
                raise
            await self._client.close()
            client = await self._open_client(is_old=True)
        self._is_old = not client.is_stateless or self.spec.kind in HANDSHAKE_FIRST
        if client.is_stateless:
            client.start_task(self._listen(client))
        self.tools = await self._list("tools")
        self.prompts = await self._list("prompts")

    async def _open_client(self, is_old: bool) -> McpClient:
        """Raises ConnectionLost or RpcError."""
        self._client, self._loss = None, asyncio.get_running_loop().create_future()
        self.transport = await self._open_transport()
        client = self._client = McpClient(
            self.transport,
            on_request=self._answer,
            on_notification=self._handle_notification,
            on_lost=lambda loss: self._lost(client, loss),
        )
        # A client that runs the server itself asks its user itself, unless the server can only ask through us.
        in_handshake = {} if self.spec.kind == "sdk" else self._capabilities
        await client.connect(self._capabilities, in_handshake=in_handshake, is_old=is_old)
        return client

    async def _listen(self, client: McpClient) -> None:
        """Subscribe to changes of lists for as long as the connection lasts. Raises ConnectionLost."""
        wanted = {
            f"{what}ListChanged": True
            for what in ("tools", "prompts", "resources")
            if as_object(client.capabilities.get(what)).get("listChanged") is True
        }
        delay, longest = LISTEN_DELAYS_SECONDS
        while wanted:
            try:
                await client.request("subscriptions/listen", {"notifications": wanted}, seconds=None)
            except RpcError as exc:
                if exc.code == METHOD_NOT_FOUND:
                    return
            await asyncio.sleep(delay)
            delay = min(2 * delay, longest)

    async def _list(self, what: str) -> list[Json]:
        if self._client is None or what not in self._client.capabilities:
            return []
        try:
            found = await self._client.list_all(f"{what}/list", what, None)
        except RpcError as exc:
            if exc.code != METHOD_NOT_FOUND:
                raise
            return []  # declared, but absent: so does the TypeScript SDK for a server without tools
        return [item for item in found if isinstance(item.get("name"), str) and 0 < len(item["name"]) < MAX_TEXT_CHARS]

    def _lost(self, client: McpClient, loss: ConnectionLost) -> None:
        if client is self._client and self._loss is not None and not self._loss.done():
            self._loss.set_result(loss)
            self.settled.clear()

    async def _disconnect(self) -> None:
        """Close the connection and keep its stderr."""
        client, self._client, self._loss = self._client, None, None
        self._refresher.close()
        self.tools, self.prompts = [], []
        if client is not None:
            await client.close()
            self.stderr = clean(client.stderr_tail())[-MAX_TEXT_CHARS:]

    async def _end(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._disconnect()

    def _set_status(self, status: Status, reason: str = "") -> None:
        self.status, self.reason = status, clean(reason)[:MAX_TEXT_CHARS]
        if status == "connected":
            self.stderr = ""
        if status == "pending":
            self.settled.clear()
        else:
            self.settled.set()
        self._listener.on_change(self)

    async def _answer(self, method: str, params: Json) -> Json:
        return await self._listener.on_request(self, method, params)

    def _handle_notification(self, method: str, params: Json) -> None:
        if self._client is not None and method.startswith(RESOURCES_CHANGED):
            self._client.forget_kept()
        if method == ACKNOWLEDGED:
            # What changed before the subscription began was not reported.
            for what in CHANGES.values():
                self._refresher.mark_stale(what)
        elif method in CHANGES:
            self._refresher.mark_stale(CHANGES[method])
        else:
            self._listener.on_notification(self, method, params)

    async def _refresh(self, what: str) -> None:
        with contextlib.suppress(
            ConnectionLost, RpcError, TimeoutError
        ):  # a disconnect is reported elsewhere, and the old list stays
            async with asyncio.timeout(self._timeouts.connect_seconds):
                found = await self._list(what)
            if found != getattr(self, what):
                setattr(self, what, found)
                self._listener.on_change(self)

    def refresh_tasks(self) -> list[asyncio.Task[None]]:
        """The running refreshes of its lists. Those that the server says have expired are started."""
        for what in CHANGES.values():
            if self._client is not None and self._client.is_expired(f"{what}/list"):
                self._refresher.mark_stale(what)
        return self._refresher.tasks()

    async def call(
        self, tool: str, arguments: Json, *, meta: Json, seconds: float | None, progress: Progress | None = None
    ) -> Json:
        """Call a tool and return the response unchanged. Raises ToolError."""
        params: Json = {"name": tool, "arguments": arguments}
        if meta:
            params["_meta"] = meta
        return await self._request("tools/call", params, seconds, progress or (lambda params: None))

    async def resources(self) -> list[Json]:
        """Raises ToolError."""
        client = self._connected_client()
        try:
            found = await client.list_all(
                "resources/list", "resources", self._timeouts.connect_seconds, may_be_kept=True
            )
        except (ConnectionLost, RequestTimeout, RpcError) as exc:
            raise self._tool_error(exc) from None
        return [clean_value({key: item[key] for key in RESOURCE_FIELDS if key in item}) for item in found]

    async def directory(self, uri: str) -> list[Json]:
        """The direct children of a directory resource. Raises ToolError.

        `resources/directory/read` belongs to the skills extension (SEP-2640). Of a server that does not have it, the
        children are taken from its list of resources.
        """
        client, seconds = self._connected_client(), self._timeouts.connect_seconds
        try:
            found = await client.list_all("resources/directory/read", "resources", seconds, {"uri": uri})
        except RpcError as exc:
            if exc.code != METHOD_NOT_FOUND:
                raise self._tool_error(exc) from None
            found = list_children(await self.resources(), uri)
        except (ConnectionLost, RequestTimeout) as exc:
            raise self._tool_error(exc) from None
        return [clean_value({key: item[key] for key in CHILD_FIELDS if key in item}) for item in found]

    async def read(self, uri: str) -> list[Json]:
        """Raises ToolError."""
        client, params = self._connected_client(), {"uri": uri}
        answer = client.find_kept("resources/read", params)
        if answer is None:
            answer = await self._request("resources/read", params, self._timeouts.for_call(self.spec, ""))
            client.keep("resources/read", params, answer)
        contents = answer.get("contents")
        return [clean_value(item) for item in contents if isinstance(item, dict)] if isinstance(contents, list) else []

    async def prompt(self, name: str, arguments: dict[str, str]) -> Json:
        """Raises ToolError."""
        params: Json = {"name": name, "arguments": arguments}
        return await self._request("prompts/get", params, self._timeouts.for_call(self.spec, ""))

    async def _request(
        self, method: str, params: Json, seconds: float | None, progress: Progress | None = None
    ) -> Json:
        try:
            client = self._connected_client()
            return await run_rounds(
                client, method, params, seconds=seconds, reconnect=self._wait_reconnected, progress=progress
            )
        except (ConnectionLost, RequestTimeout, RpcError) as exc:
            raise self._tool_error(exc) from None

    async def _wait_reconnected(self) -> McpClient:
        """The next client after a loss. Raises ToolError."""
        await self.settled.wait()
        return self._connected_client()

    def _connected_client(self) -> McpClient:
        if self._client is None or self.status != "connected":
            why = f": {self.reason}" if self.reason else ""
            raise ToolError(f"MCP server {self.spec.name!r} is not connected ({self.status}){why}")
        return self._client

    def _tool_error(self, exc: Exception) -> ToolError:
        code = f" (error {exc.code})" if isinstance(exc, RpcError) else ""
        return ToolError(f"MCP server {self.spec.name!r}: {clean(str(exc))[:MAX_TEXT_CHARS]}{code}")


def list_children(resources: list[Json], uri: str) -> list[Json]:
    """The direct children of a directory, as far as the addresses of resources show them."""
    base, found = f"{uri.rstrip('/')}/", dict[str, Json]()
    for resource in resources:
        below = str(resource.get("uri")).removeprefix(base)
        name, slash, _ = below.partition("/")
        if not name or below == resource.get("uri"):
            continue
        directory = {"uri": base + name, "name": name, "mimeType": DIRECTORY_TYPE}
        found.setdefault(base + name, directory if slash else resource)
    return list(found.values())


def method_not_found(method: str) -> RpcError:
    return RpcError(METHOD_NOT_FOUND, f"{method} is not supported")
