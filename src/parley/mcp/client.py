"""An MCP client: JSON-RPC over any transport, in the revision that the server speaks.

    client = McpClient(transport, on_request=answer)
    await client.connect(capabilities)
    result = await client.request("tools/call", {...}, seconds=60)

There are two kinds of servers. One of 2026-07-28 has no handshake: it answers `server/discover`, and every request
carries the version, the client and its capabilities in `_meta`. An older one has the `initialize` handshake; it rejects
`server/discover`, ignores it or disconnects. A server may be both, and then the newer revision is used.

A progress notification restarts the timeout of a request, and the timeout is suspended while the server waits for an
answer from the user. A request that times out or is cancelled is cancelled on the server too.

    result = await run_rounds(client, "tools/call", params, seconds=60, reconnect=find_next_client)

In 2026-07-28, a request can take several round trips. A result can be `input_required`: the questions in it are
answered like requests of the server, and the request is sent again with the answers and the server's state. Or it is a
task (the extension `io.modelcontextprotocol/tasks`): it is polled to its end, also over a connection that replaces a
lost one, and its questions are answered by `tasks/update`. If the caller gives up, the task is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from parley.jsonrpc import INTERNAL_ERROR, RequestId, RpcError, RunningRequests, make_error, make_result, settle
from parley.mcp.base import REFUSED, ConnectionLost, NeedsAuth, ServerTransport
from parley.mcp.content import clean
from parley.mcp.tool_server import HANDSHAKE_VERSIONS, META_VERSIONS, UNSUPPORTED_VERSION, VERSION_KEY
from parley.protocol.base import Json, encode_json
from parley.version import __version__

PROTOCOL_VERSION = HANDSHAKE_VERSIONS[-1]
"""The newest revision with a handshake."""
STATELESS_VERSION = META_VERSIONS[-1]
PROBE_SECONDS = 1.0
"""How long `server/discover` may take before `initialize` is sent as well.

Both then wait in the input of a server that is slow to start, and the answers tell what it speaks. So a server that
ignores unknown requests costs a second, and one that needs a minute is not mistaken for it.
"""
PROBE_IDS = ("discover", "discover-again")
"""The ids of probes. The other requests have the same numbers with and without them."""
META_PREFIX = "io.modelcontextprotocol/"
TASKS_EXTENSION = META_PREFIX + "tasks"
CLIENT = {"name": "parley", "title": "Parley", "version": __version__}
MAX_NAME_CHARS = 200
MAX_PAGES = 100
MAX_LISTED = 2_000
"""Limit of tools, prompts or resources. One message to the client contains all of them."""
USER_REQUESTS = ("elicitation/create",)
UNCANCELLABLE = ("initialize", "server/discover")
MAX_INCOMING = 64
"""How many requests of one server are handled at a time. Further ones are rejected."""
MAX_GIVEN_MS = 86_400_000
MAX_KEPT = 16
"""How many results are kept for as long as the server allows."""
MAX_ROUNDS = 10
"""How often a server may ask for input during one request."""
STATE_PAUSE_SECONDS = 0.25
"""Before a request is sent again whose server wants nothing but its state back."""
POLL_SECONDS = 1.0
"""Between polls, unless the server says otherwise."""
MIN_POLL_SECONDS = 0.05
MAX_POLL_SECONDS = 60.0
CANCEL_SECONDS = 10.0

Progress = Callable[[Json], None]
Answerer = Callable[[str, Json], Awaitable[Json]]


class RequestTimeout(Exception):
    """A server did not answer in time."""


class SentRequest:
    """A request that waits for its response."""

    def __init__(self, answer: asyncio.Future[Json], seconds: float | None, progress: Progress | None) -> None:
        self.answer = answer
        self.seconds = seconds
        self.progress = progress
        self.limit: asyncio.Timeout | None = None

    def reset_timeout(self, *, running: bool = True) -> None:
        """Restart the timeout, or suspend it."""
        if self.limit is None or self.answer.done() or self.limit.expired():
            return
        now = asyncio.get_running_loop().time()
        self.limit.reschedule(now + self.seconds if running and self.seconds is not None else None)


class IncomingRequest:
    """A request from the server that is being answered."""

    def __init__(self, calls: set[RequestId]) -> None:
        self.calls = calls
        """Our requests that were pending when it arrived. It belongs to one of them."""
        self.is_moot = False
        """Whether all of them were cancelled."""
        self.task: asyncio.Task[None] | None = None

    def withdraw(self, call: RequestId) -> None:
        if call in self.calls:
            self.calls.remove(call)
            self.is_moot = not self.calls
            if self.is_moot and self.task is not None:
                self.task.cancel()


class McpClient:
    def __init__(
        self,
        transport: ServerTransport,
        *,
        on_request: Answerer,
        on_notification: Callable[[str, Json], None] = lambda method, params: None,
        on_lost: Callable[[ConnectionLost], None] = lambda loss: None,
    ) -> None:
        self.version = ""
        """The revision that is spoken; empty before `connect` has returned."""
        self.info: Json = {}
        self.capabilities: Json = {}
        self.instructions = ""
        self._envelope: Json = {}
        """The `_meta` of every message in a revision without a handshake."""
        self._transport = transport
        self._on_request = on_request
        """Answers the server's requests. Raises RpcError."""
        self._on_notification = on_notification
        self._on_lost = on_lost
        self._pending: dict[RequestId, SentRequest] = {}
        self._next_id = 0
        self._elicitations = 0
        """How many elicitations are waiting for the user."""
        self._tasks = RunningRequests()
        self._incoming: dict[Any, IncomingRequest] = {}
        """Requests from the server by their ids."""
        self._failure: ConnectionLost | None = None
        self._refusal: NeedsAuth | None = None
        """Why the probe needs a login. It decides nothing yet: the handshake may be open to everybody."""
        self._expiry: dict[str, float] = {}
        """When a list should be read again, by its method; only for lists whose server says so."""
        self._kept: dict[bytes, tuple[float, Json]] = {}
        """Results with the times at which they expire, by their requests."""

    @property
    def is_stateless(self) -> bool:
        """Whether the server is spoken to without a handshake."""
        return bool(self._envelope)

    async def connect(self, capabilities: Json, *, in_handshake: Json | None = None, is_old: bool = False) -> None:
        """Find out what the server speaks and offers. Raises ConnectionLost or RpcError.

        `in_handshake`: what is declared to an older server, if it differs. `is_old`: the server is known to have the
        handshake, and is asked for nothing else unless it rejects it.
        """
        await self._transport.open(self.receive, self._fail)
        envelope = {
            VERSION_KEY: STATELESS_VERSION,
            META_PREFIX + "clientInfo": CLIENT,
            META_PREFIX + "clientCapabilities": {**capabilities, "extensions": {TASKS_EXTENSION: {}}},
        }
        result = await self._negotiate(envelope, capabilities if in_handshake is None else in_handshake, is_old)
        if self.is_stateless:
            self.version = STATELESS_VERSION
            info = as_object(as_object(result.get("_meta")).get(META_PREFIX + "serverInfo"))
        else:
            await self.notify("notifications/initialized")
            if not isinstance(result.get("protocolVersion"), str):
                raise ConnectionLost("the server sent an initialize response without a protocol version")
            self.version = result["protocolVersion"]
            info = as_object(result.get("serverInfo"))
        self.info = {key: clean(value)[:MAX_NAME_CHARS] for key, value in info.items() if isinstance(value, str)}
        self.capabilities = as_object(result.get("capabilities"))
        self.instructions = clean(result["instructions"]) if isinstance(result.get("instructions"), str) else ""

    async def _negotiate(self, envelope: Json, capabilities: Json, is_old: bool) -> Json:
        """The result of `server/discover` or `initialize`. Raises ConnectionLost or RpcError."""
        params = {"protocolVersion": PROTOCOL_VERSION, "capabilities": capabilities, "clientInfo": CLIENT}
        if is_old:
            try:
                return await self.request("initialize", params, seconds=None)
            except RpcError as exc:
                discovered = await self._discover(envelope)
                if discovered is None:
                    raise self._refusal or exc from None
                return discovered
        probe = asyncio.ensure_future(self._discover(envelope))
        handshake: asyncio.Future[Json] | None = None
        try:
            await asyncio.wait({probe}, timeout=PROBE_SECONDS)
            if probe.done() and (discovered := probe.result()) is not None:
                return discovered
            handshake = asyncio.ensure_future(self.request("initialize", params, seconds=None))
            if not probe.done():
                await asyncio.wait({probe, handshake}, return_when=asyncio.FIRST_COMPLETED)
            if not probe.done() and handshake.exception() is not None:
                await asyncio.wait({probe}, timeout=PROBE_SECONDS)
            # The probe was sent first, so its answer counts if there are two.
            if probe.done() and (discovered := probe.result()) is not None:
                return discovered
            return await handshake
        except RpcError as exc:
            raise self._refusal or exc from None
        finally:
            for attempt in (probe, handshake):
                if attempt is not None:
                    consume_exception(attempt)

    async def _discover(self, envelope: Json) -> Json | None:
        """The result of `server/discover`; None if the server has to be initialized.

        Raises ConnectionLost, or RpcError if there is no common revision.
        """
        for attempt in PROBE_IDS:
            try:
                result = await self.request("server/discover", {"_meta": envelope}, seconds=None, id=attempt)
            except RpcError as exc:
                if exc.code == REFUSED:
                    self._refusal = NeedsAuth(str(exc))
                supported = as_object(exc.data).get("supported") if exc.code == UNSUPPORTED_VERSION else None
                versions = set(map(str, supported)) if isinstance(supported, list) else set()
                if STATELESS_VERSION in versions:
                    continue  # a server may reject the first version it is offered, whatever it is
                if versions and not versions & {*HANDSHAKE_VERSIONS}:
                    listed = clean(", ".join(sorted(versions)))[:MAX_NAME_CHARS]
                    raise RpcError(exc.code, f"it speaks none of our revisions of MCP, only {listed}") from None
                return None
            offered = result.get("supportedVersions")
            if isinstance(offered, list) and STATELESS_VERSION in offered:
                self._envelope = envelope
                return result
            return None
        return None

    async def request(
        self,
        method: str,
        params: Json | None = None,
        *,
        seconds: float | None,
        progress: Progress | None = None,
        id: RequestId | None = None,
    ) -> Json:
        """Return the result of a request. Raises ConnectionLost, RpcError or RequestTimeout."""
        if self._failure is not None:
            raise self._failure
        number = id
        if number is None:
            number, self._next_id = self._next_id, self._next_id + 1
        pending = SentRequest(asyncio.get_running_loop().create_future(), seconds, progress)
        self._pending[number] = pending
        try:
            async with asyncio.timeout(seconds) as pending.limit:
                meta = self._envelope if progress is None else {**self._envelope, "progressToken": number}
                await self._transport.send({**format_message(method, params, meta), "id": number})
                return await pending.answer
        except TimeoutError:
            self._withdraw(number, method, "timed out")
            raise RequestTimeout(f"{method} got no response and no progress for {seconds:g} s") from None
        except asyncio.CancelledError:
            self._withdraw(number, method, "cancelled")
            raise
        finally:
            del self._pending[number]
            consume_exception(pending.answer)

    async def notify(self, method: str, params: Json | None = None) -> None:
        """Raises ConnectionLost."""
        await self._transport.send(format_message(method, params, self._envelope))

    def find_kept(self, method: str, params: Json | None) -> Json | None:
        """An earlier result, for as long as its server allows (`ttlMs`).

        `cacheScope` makes no difference, because what a connection keeps is not shared.
        """
        expires_at, result = self._kept.get(encode_json([method, params]), (0.0, None))
        return result if asyncio.get_running_loop().time() < expires_at else None

    def keep(self, method: str, params: Json | None, result: Json) -> None:
        """Keep a result for `find_kept`, if its server allows that."""
        now = asyncio.get_running_loop().time()
        if lifetime_seconds := self._read_lifetime(result):
            self._kept = {key: kept for key, kept in self._kept.items() if now < kept[0]}
            if len(self._kept) < MAX_KEPT:
                self._kept[encode_json([method, params])] = now + lifetime_seconds, result

    def _read_lifetime(self, result: Json) -> float:
        """For how many seconds a result may be kept; 0 if the server does not say so."""
        return read_seconds(result.get("ttlMs"), 0.0) if self.is_stateless else 0.0

    def forget_kept(self) -> None:
        """The server said that something changed."""
        self._kept.clear()

    def is_expired(self, method: str) -> bool:
        """Whether the server wants a list to be read again by now."""
        return self._expiry.get(method, float("inf")) <= asyncio.get_running_loop().time()

    async def list_all(
        self, method: str, key: str, seconds: float | None, params: Json | None = None, *, may_be_kept: bool = False
    ) -> list[Json]:
        """All items of a paginated list. Raises ConnectionLost, RpcError or RequestTimeout."""
        found: list[Json] = []
        cursor: str | None = None
        self._expiry.pop(method, None)
        for _ in range(MAX_PAGES):
            asked = {**(params or {}), "cursor": cursor} if cursor else params
            page = self.find_kept(method, asked) if may_be_kept else None
            if page is None:
                page = await self.request(method, asked, seconds=seconds)
                if may_be_kept:
                    self.keep(method, asked, page)
            if lifetime_seconds := self._read_lifetime(page):
                expires_at = asyncio.get_running_loop().time() + lifetime_seconds
                self._expiry[method] = min(expires_at, self._expiry.get(method, expires_at))
            items = page.get(key)
            found += [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor or len(found) >= MAX_LISTED:
                break
        return found[:MAX_LISTED]

    async def close(self) -> None:
        self._fail("the connection was closed")
        await self._tasks.close()
        await self._transport.close()

    def stderr_tail(self) -> str:
        return self._transport.stderr_tail()

    def receive(self, message: Json) -> None:
        """Handle a message from the server. It can be any JSON object."""
        method, number = message.get("method"), message.get("id")
        if isinstance(method, str):
            params = as_object(message.get("params"))
            if number is None:
                self._handle_notification(method, params)
            elif isinstance(number, int | str):
                request = self._incoming[number] = IncomingRequest(set(self._pending))
                request.task = self.start_task(self._handle_request(number, method, params, request), number)
        elif type(number) in (int, str) and number in self._pending:  # bool is a subclass of int
            settle(self._pending[number].answer, as_object(message.get("result")), message.get("error"))

    def _handle_notification(self, method: str, params: Json) -> None:
        if method == "notifications/cancelled" and isinstance(params.get("requestId"), int | str):
            self._tasks.cancel(params["requestId"])
            return
        if method != "notifications/progress":
            self._on_notification(method, params)
            return
        token = params.get("progressToken")
        pending = self._pending.get(token) if isinstance(token, int | str) else None
        if pending is not None:
            pending.reset_timeout(running=self._elicitations == 0)
            if pending.progress is not None:
                pending.progress(params)

    async def _handle_request(self, number: Any, method: str, params: Json, request: IncomingRequest) -> None:
        try:
            if len(self._tasks) > MAX_INCOMING:
                raise RpcError(INTERNAL_ERROR, "too many concurrent requests")
            answer = make_result(number, {} if method == "ping" else await self.answer(method, params))
        except RpcError as exc:
            answer = make_error(number, exc)
        except asyncio.CancelledError:
            if not request.is_moot:
                raise
            text = "the call that this request belongs to was cancelled"
            answer = make_error(number, RpcError(INTERNAL_ERROR, text))
        except Exception as exc:
            # Every request gets a response, also after a bug of ours.
            answer = make_error(number, RpcError(INTERNAL_ERROR, f"internal error: {type(exc).__name__}"))
        finally:
            self._incoming.pop(number, None)
        await self._transport.send(answer)

    async def answer(self, method: str, params: Json) -> Json:
        """Answer a request of the server. Timeouts are suspended while the user is asked. Raises RpcError."""
        if method not in USER_REQUESTS:
            return await self._on_request(method, params)
        self._elicitations += 1
        self._reset_timeouts()
        try:
            return await self._on_request(method, params)
        finally:
            self._elicitations -= 1
            self._reset_timeouts()

    def _reset_timeouts(self) -> None:
        for pending in self._pending.values():
            pending.reset_timeout(running=self._elicitations == 0)

    def _withdraw(self, number: RequestId, method: str, reason: str) -> None:
        if self._failure is None and method not in UNCANCELLABLE:
            self.start_task(self.notify("notifications/cancelled", {"requestId": number, "reason": reason}))
            for request in list(self._incoming.values()):
                request.withdraw(number)

    def _fail(self, reason: ConnectionLost | str) -> None:
        if self._failure is not None:
            return
        self._failure = loss = reason if isinstance(reason, ConnectionLost) else ConnectionLost(reason)
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(loss)
        self._on_lost(loss)

    def start_task(self, work: Coroutine[Any, Any, object], id: RequestId | None = None) -> asyncio.Task[None]:
        """Run in the background until `close`. Errors of the server and of the connection are ignored."""

        async def run() -> None:
            with contextlib.suppress(ConnectionLost, RequestTimeout, RpcError):
                await work

        task = self._tasks.start(run(), id)
        task.add_done_callback(lambda done: work.close())  # it may not have started
        return task


def format_message(method: str, params: Json | None, meta: Json) -> Json:
    """A JSON-RPC notification; with an id, a request."""
    if meta:
        params = {**(params or {}), "_meta": {**as_object((params or {}).get("_meta")), **meta}}
    message: Json = {"jsonrpc": "2.0", "method": method}
    return message if params is None else {**message, "params": params}


def consume_exception(answer: asyncio.Future[Any]) -> None:
    """Cancel it if it is not done. Otherwise mark its exception as retrieved, because asyncio warns otherwise."""
    if not answer.cancel() and not answer.cancelled():
        answer.exception()


def read_seconds(milliseconds: Any, default: float) -> float:
    """A time that a server gives, at most a day. Its number may be too large for a float."""
    if not isinstance(milliseconds, int | float):
        return default
    return min(max(milliseconds, 0), MAX_GIVEN_MS) / 1000


def as_object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


async def run_rounds(
    client: McpClient,
    method: str,
    params: Json,
    *,
    seconds: float | None,
    reconnect: Callable[[], Awaitable[McpClient]],
    progress: Progress | None = None,
) -> Json:
    """The final result of a request. Raises ConnectionLost, RpcError or RequestTimeout.

    `reconnect` waits for the client that follows a lost one, and raises what the caller gets if there is none.
    """
    result = await client.request(method, params, seconds=seconds, progress=progress)
    if not client.is_stateless:
        return result
    for _ in range(MAX_ROUNDS):
        if result.get("resultType") != "input_required":
            break
        again = {**params}
        if requests := as_object(result.get("inputRequests")):
            again["inputResponses"] = await answer_all(client, requests)
        else:
            await asyncio.sleep(STATE_PAUSE_SECONDS)
        if isinstance(result.get("requestState"), str):
            again["requestState"] = result["requestState"]
        result = await client.request(method, again, seconds=seconds, progress=progress)
    if result.get("resultType") == "input_required":
        raise RpcError(INTERNAL_ERROR, f"the server asked for input more than {MAX_ROUNDS} times")
    if result.get("resultType") == "task":
        return await poll_task(client, result, seconds, reconnect, progress)
    return result


async def answer_all(client: McpClient, requests: Json) -> Json:
    """The answers to the server's questions, asked one after the other. Raises RpcError."""
    asked = {key: as_object(request) for key, request in requests.items()}
    return {
        key: await client.answer(str(one.get("method")), as_object(one.get("params"))) for key, one in asked.items()
    }


async def poll_task(
    client: McpClient,
    task: Json,
    seconds: float | None,
    reconnect: Callable[[], Awaitable[McpClient]],
    progress: Progress | None,
) -> Json:
    """The result of a task. Raises ConnectionLost, RpcError, or RequestTimeout if nothing changes for `seconds`."""
    id, clock = {"taskId": task.get("taskId")}, asyncio.get_running_loop().time
    answered: set[str] = set()
    state, changed_at = None, clock()
    try:
        while True:
            interval = read_seconds(task.get("pollIntervalMs"), POLL_SECONDS)
            await asyncio.sleep(min(max(interval, MIN_POLL_SECONDS), MAX_POLL_SECONDS))
            try:
                task = await client.request("tasks/get", id, seconds=seconds)
            except ConnectionLost:
                client = await reconnect()
                continue
            message = clean(str(task.get("statusMessage") or ""))
            match task.get("status"):
                case "completed":
                    return as_object(task.get("result"))
                case "failed":
                    error = as_object(task.get("error"))
                    text = error.get("message") or message or "the task failed without an error message"
                    raise RpcError(error.get("code"), str(text))
                case "cancelled":
                    raise RpcError(INTERNAL_ERROR, f"the server cancelled the task: {message or 'no reason given'}")
                case "input_required":
                    # A poll may repeat questions whose answers the server has not read yet.
                    requests = as_object(task.get("inputRequests"))
                    if new := {key: requests[key] for key in requests.keys() - answered}:
                        answered |= new.keys()
                        responses = await answer_all(client, new)
                        await client.request("tasks/update", {**id, "inputResponses": responses}, seconds=seconds)
                        changed_at = clock()
            before, state = state, (task.get("status"), message, task.get("lastUpdatedAt"))
            if state != before:
                changed_at = clock()
                if progress is not None:
                    progress({"message": message})
            elif seconds is not None and clock() - changed_at > seconds:
                raise RequestTimeout(f"the task showed no change for {seconds:g} s")
    except (asyncio.CancelledError, RequestTimeout):
        client.start_task(client.request("tasks/cancel", id, seconds=CANCEL_SECONDS))
        raise
