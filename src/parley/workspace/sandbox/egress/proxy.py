"""The proxy through which sandboxed commands reach the network.

    proxy = EgressProxy(policy=lambda: policy, ask=ask_the_client)
    proxy.serve(listener)          # a socket that listens in the network namespace of the sandbox
    proxy.take_refusals()          # the hosts that were refused, for the result of the command

HTTP, HTTP CONNECT and SOCKS5 arrive on one port and are judged by one function, `_admit`: the host must be allowed, by
a pattern or by an answer, and so must be every address that it resolves to. The connection goes to a judged address,
so a name that resolves differently a moment later has no effect. There is no UDP, and names are resolved here only.

A plain HTTP connection carries one request. A tunnel is not decrypted, so a server that is reached through it may
forward to others; allow only hosts that you trust with what the commands can read. If it carries TLS, the name in the
client's first message must be allowed, too: behind one address there may be many hosts (`wire.py`).

With ports of the user's own proxies, connections are passed on to those, which decide by themselves.

Patterns (`EgressPolicy`). A pattern is a host, `*.example.com` for every host below it but not itself, an address, or
`*`. Hosts are compared in lower case, without a final dot and label by label. A pattern that denies wins. A private
address needs a pattern that names it, or a pattern that names a host which is local by its name (`localhost`,
`build.internal`). The owner of a public name decides what it resolves to, so allowing the name does not open the local
network.

See also: `wire.py` for the protocols, `../base.py` for how the listener gets here.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal

from parley.protocol.base import Struct
from parley.workspace.sandbox.base import HostRefusal
from parley.workspace.sandbox.egress.wire import (
    MAX_HEAD_BYTES,
    READ_BYTES,
    REFUSAL,
    SOCKS_OK,
    SOCKS_REFUSED,
    SOCKS_UNREACHABLE,
    SOCKS_VERSION,
    BadRequest,
    ProxyRequest,
    http_error,
    read_body,
    read_http,
    read_opening,
    read_socks,
    socks_reply,
)
from parley.workspace.url import LONGEST_HOST, is_numeric, is_public, list_equal_addresses, matches_host, read_address
from parley.workspace.web import Resolver, resolve_host

AskHost = Callable[[str, int], Awaitable[bool]]
"""Asks whether a host may be reached, given its name and the port. Does not raise."""
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
"""Both directions of a connection."""
CLOSE_SECONDS = 5.0
MAX_REFUSALS = 100
"""How many refusals are kept for a result. The rest is the same or hostile."""


class EgressLimits(Struct, frozen=True, kw_only=True):
    connections: int = 256
    """Open connections; more are closed at once."""
    head_seconds: float = 30
    """For the request of a client."""
    resolve_seconds: float = 10
    connect_seconds: float = 10
    idle_seconds: float = 900
    """Without a byte in either direction."""
    questions: int = 8
    """Hosts that are asked about at the same time; more are refused."""


class OwnProxies(Struct, frozen=True, kw_only=True):
    """The ports of the user's own proxies on this machine (`httpProxyPort`, `socksProxyPort`)."""

    http: int | None = None
    socks: int | None = None


DEFAULT_LIMITS = EgressLimits()
NO_OWN_PROXIES = OwnProxies()


class EgressRefused(Exception):
    """The policy does not permit a target."""


class Unreachable(Exception):
    """A permitted target cannot be reached."""


class EgressProxy:
    """Connects commands to the hosts that the policy permits."""

    def __init__(
        self,
        policy: Callable[[], EgressPolicy],
        *,
        ask: AskHost | None = None,
        own: OwnProxies = NO_OWN_PROXIES,
        resolve: Resolver = resolve_host,
        limits: EgressLimits = DEFAULT_LIMITS,
        on_refusal: Callable[[HostRefusal], None] = lambda refusal: None,
    ) -> None:
        """`policy`: the current one, because rules change during a session. `on_refusal`: called once per host."""
        self._policy = policy
        self._ask = ask
        self._own = own
        self._resolve = resolve
        self._limits = limits
        self._on_refusal = on_refusal
        self._connections: set[asyncio.Task[None]] = set()
        self._listeners: set[asyncio.Task[None]] = set()
        self._questions: dict[str, asyncio.Task[bool]] = {}
        self._approved: set[str] = set()
        """The hosts that were allowed by an answer. They stay so for the session."""
        self._refusals: dict[tuple[str, int], HostRefusal] = {}

    def serve(self, listener: socket.socket) -> Callable[[], object]:
        """Accept connections on a listening socket. Takes ownership of the socket; the result closes it."""
        listener.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._accept(listener))
        self._listeners.add(task)
        task.add_done_callback(self._listeners.discard)
        return task.cancel

    def take_refusals(self) -> list[HostRefusal]:
        """The refusals since the last call. A host that was denied is asked about again after it."""
        found = list(self._refusals.values())
        self._refusals.clear()
        self._questions = {host: task for host, task in self._questions.items() if not task.done()}
        return found

    async def close(self) -> None:
        """End all connections."""
        tasks = [*self._listeners, *self._connections, *self._questions.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                try:
                    connection, _ = await loop.sock_accept(listener)
                except ConnectionError:
                    continue  # the client has gone
                except OSError:
                    await asyncio.sleep(0.1)  # no descriptors left: others have to end first
                    continue
                if len(self._connections) >= self._limits.connections:
                    connection.close()
                    continue
                task = loop.create_task(self._serve(connection))
                self._connections.add(task)
                task.add_done_callback(self._connections.discard)

    async def _serve(self, connection: socket.socket) -> None:
        """One connection of a command, to its end."""
        with contextlib.suppress(OSError, TimeoutError):  # the command has gone, or sends nothing
            try:
                async with asyncio.timeout(self._limits.head_seconds):
                    is_socks = await peek_byte(connection) == SOCKS_VERSION
            except BaseException:
                connection.close()
                raise
            client = await asyncio.open_connection(sock=connection, limit=MAX_HEAD_BYTES)
            try:
                own_port = self._own.socks if is_socks else self._own.http
                if own_port is not None:  # a proxy of the user decides
                    await self._relay(None, client, await asyncio.open_connection("127.0.0.1", own_port))
                elif is_socks:
                    await self._serve_socks(client)
                else:
                    await self._serve_http(client)
            finally:
                await close_writer(client[1])

    async def _serve_http(self, client: Streams) -> None:
        reader, writer = client
        try:
            async with asyncio.timeout(self._limits.head_seconds):
                request = await read_http(reader)
            upstream = await self._connect(request)
        except BadRequest as exc:
            reply = http_error("400 Bad Request", f"The sandbox's proxy cannot read the request: {exc}.")
        except EgressRefused as exc:
            reply = http_error("403 Forbidden", str(exc))
        except Unreachable as exc:
            reply = http_error("502 Bad Gateway", str(exc))
        else:
            if request.head:
                await self._forward(request, client, upstream)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await self._relay(request, client, upstream)
            return
        writer.write(reply)
        await writer.drain()

    async def _serve_socks(self, client: Streams) -> None:
        reader, writer = client
        try:
            async with asyncio.timeout(self._limits.head_seconds):
                request = await read_socks(reader, writer)
            upstream = await self._connect(request)
        except BadRequest:
            return  # it has its reply
        except (EgressRefused, Unreachable) as exc:
            writer.write(socks_reply(SOCKS_REFUSED if isinstance(exc, EgressRefused) else SOCKS_UNREACHABLE))
            await writer.drain()
            return
        writer.write(socks_reply(SOCKS_OK))
        await self._relay(request, client, upstream)

    async def _connect(self, request: ProxyRequest) -> Streams:
        """Judge a target and connect to it. Raises EgressRefused and Unreachable."""
        try:
            host, addresses = await self._admit(request)
        except EgressRefused as exc:
            self._record(HostRefusal(request.host[:255], request.port, str(exc)))
            raise
        error: OSError | None = None
        for address in addresses:
            try:
                async with asyncio.timeout(self._limits.connect_seconds):
                    return await asyncio.open_connection(address, request.port)
            except OSError as exc:  # TimeoutError is one
                error = exc
        raise Unreachable(f"{host}:{request.port} cannot be reached: {error or 'it has no address'}")

    async def _admit(self, request: ProxyRequest) -> tuple[str, list[str]]:
        """The host, and the addresses to connect to. The only place that permits a connection. Raises EgressRefused."""
        try:
            host = read_host(request.host)
        except InvalidHost as exc:
            raise EgressRefused(f"The sandbox refused a connection: {exc}.") from None
        verdict = self._policy().judge(host)
        if verdict == "deny":
            raise EgressRefused(f"The sandbox refused the connection to {host}: it is in deniedDomains.")
        if verdict == "ask" and not await self._ask_once(host, request.port):
            raise EgressRefused(
                f"The sandbox refused the connection to {host}: it is not in sandbox.network.allowedDomains."
            )
        try:
            async with asyncio.timeout(self._limits.resolve_seconds):
                addresses = await self._resolve(host, request.port)
        except (OSError, UnicodeError) as exc:
            raise Unreachable(f"The host {host} was not found: {exc}") from None
        policy = self._policy()
        for address in addresses:
            if reason := policy.refuses_address(host, address, is_approved=host in self._approved):
                raise EgressRefused(f"The sandbox refused the connection to {host}: {reason}.")
        return host, addresses

    async def _read_opening(self, request: ProxyRequest, reader: asyncio.StreamReader) -> bytes:
        """What a client sends first through a tunnel. Raises BadRequest, or EgressRefused for another host."""
        opening = await read_opening(reader)
        if opening.name is None:
            return opening.data
        try:
            name = read_host(opening.name)
        except InvalidHost as exc:
            raise BadRequest(str(exc)) from None
        verdict = self._policy().judge(name)
        is_same = name == read_host(request.host)
        if verdict == "deny" or not (is_same or verdict == "allow" or name in self._approved):
            reason = f"The sandbox refused a TLS connection to {request.host}, because it asks for {name}."
            self._record(HostRefusal(name, request.port, reason))
            raise EgressRefused(reason)
        return opening.data

    async def _ask_once(self, host: str, port: int) -> bool:
        """The answer about a host. All connections to it that wait share one question."""
        if host in self._approved:
            return True
        if self._ask is None:
            return False
        question = self._questions.get(host)
        if question is None:
            if sum(not task.done() for task in self._questions.values()) >= self._limits.questions:
                return False
            question = asyncio.ensure_future(self._ask(host, port))
            self._questions[host] = question
        if await asyncio.shield(question):
            self._approved.add(host)
        return host in self._approved

    def _record(self, refusal: HostRefusal) -> None:
        key = (refusal.host, refusal.port)
        if key not in self._refusals and len(self._refusals) < MAX_REFUSALS:
            self._refusals[key] = refusal
            self._on_refusal(refusal)

    async def _forward(self, request: ProxyRequest, client: Streams, upstream: Streams) -> None:
        """Send one plain HTTP request, and nothing that follows it, and relay the response."""
        (reader, writer), (upstream_reader, upstream_writer) = client, upstream

        async def send() -> None:
            upstream_writer.write(request.head)
            with contextlib.suppress(BadRequest):  # the server sees an incomplete body
                async for part in read_body(reader, request.body_bytes):
                    upstream_writer.write(part)
                    await upstream_writer.drain()
                    idle.reschedule(self._deadline())

        async def receive() -> None:
            while data := await upstream_reader.read(READ_BYTES):
                writer.write(data)
                await writer.drain()
                idle.reschedule(self._deadline())
            sending.cancel()  # the response is complete

        try:
            async with asyncio.timeout(self._limits.idle_seconds) as idle:
                sending = asyncio.ensure_future(send())
                try:
                    await receive()
                finally:
                    sending.cancel()
                    await asyncio.gather(sending, return_exceptions=True)
        finally:
            await close_writer(upstream_writer)

    async def _relay(self, request: ProxyRequest | None, client: Streams, upstream: Streams) -> None:
        """Copy bytes in both directions until both have ended, or one fails. `request`: whose TLS name is judged."""
        (reader, writer), (upstream_reader, upstream_writer) = client, upstream

        async def send() -> None:
            if request is not None:
                try:
                    upstream_writer.write(await self._read_opening(request, reader))
                except (BadRequest, EgressRefused):
                    writer.write(REFUSAL)
                    raise
            await copy(reader, upstream_writer)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(READ_BYTES):
                target.write(data)
                await target.drain()
                idle.reschedule(self._deadline())
            target.write_eof()

        try:
            async with asyncio.timeout(self._limits.idle_seconds) as idle, asyncio.TaskGroup() as both:
                both.create_task(send())
                both.create_task(copy(upstream_reader, writer))
        except* (OSError, BadRequest, EgressRefused):  # TimeoutError is an OSError
            pass
        finally:
            await close_writer(upstream_writer)

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._limits.idle_seconds


async def close_writer(writer: asyncio.StreamWriter) -> None:
    """Send what is left and close, without waiting long for a peer that does not read."""
    writer.close()
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await writer.wait_closed()
    except OSError:  # TimeoutError is one
        writer.transport.abort()
    except asyncio.CancelledError:
        writer.transport.abort()
        raise


async def peek_byte(connection: socket.socket) -> int:
    """The first byte, which stays in the socket; -1 at the end of the stream. Raises OSError."""
    loop = asyncio.get_running_loop()
    connection.setblocking(False)
    ready: asyncio.Future[None] = loop.create_future()

    def set_ready() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(connection, set_ready)
    try:
        await ready
    finally:
        loop.remove_reader(connection)
    first = connection.recv(1, socket.MSG_PEEK)
    return first[0] if first else -1


Verdict = Literal["allow", "deny", "ask"]
NAME = re.compile(r"[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*")
LOCAL_NAME = re.compile(r"(.*\.)?(localhost|local|localdomain|internal|intranet|lan|home|corp|private|home\.arpa)")


class InvalidHost(Exception):
    """The text is neither a host name nor an address."""


def read_host(text: str) -> str:
    """The host as it is judged and looked up: a name in lower case, or an address in its shortest form.

    Raises InvalidHost. Other spellings of an address (`2130706433`, `0x7f.1`, `127.1`) are refused, because resolvers
    differ in what they make of them.
    """
    host = text.lower().removesuffix(".")
    address = read_address(host)
    if address is not None and (":" in host or address == host):
        return address
    if len(host) > LONGEST_HOST or not NAME.fullmatch(host):
        raise InvalidHost(f"{text[:100]!r} is not a host name (letters, digits, dots and hyphens)")
    if is_numeric(host):
        raise InvalidHost(f"{text[:100]!r} is an address in an ambiguous form")
    return host


def read_pattern(text: str) -> str:
    """A pattern in the form that is compared. Raises InvalidHost."""
    pattern = text.strip().removeprefix("domain:")
    if pattern == "*":
        return pattern
    prefix, host = ("*.", pattern[2:]) if pattern.startswith("*.") else ("", pattern)
    try:
        ascii_text = host if host.isascii() else host[: LONGEST_HOST + 1].encode("idna").decode("ascii")
    except UnicodeError:
        raise InvalidHost(f"{text[:100]!r} is not a host name") from None
    if "*" not in ascii_text:
        # Resolvers differ in what they make of some spellings, so a pattern means all of them.
        return prefix + ((not prefix and read_address(ascii_text)) or read_host(ascii_text))
    # As in WebFetch rules, a star may also stand for a part of a label.
    read_host(ascii_text.replace("*", "x"))
    return prefix + ascii_text.lower().removesuffix(".")


def matches(pattern: str, host: str) -> bool:
    """Whether a pattern from `read_pattern` covers a host from `read_host`. An address is not below another host."""
    return matches_host(pattern, host) and not (pattern.startswith("*.") and read_address(host) is not None)


class EgressPolicy(Struct, frozen=True, kw_only=True):
    """The patterns of a session, from `read_patterns`."""

    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    is_public: Callable[[str], bool] = is_public

    def judge(self, host: str) -> Verdict:
        """Decide on a host from `read_host`."""
        if any(matches(pattern, name) for name in list_equal_addresses(host) for pattern in self.denied):
            return "deny"
        return "allow" if any(matches(pattern, host) for pattern in self.allowed) else "ask"

    def refuses_address(self, host: str, address: str, *, is_approved: bool = False) -> str:
        """Why an address of an allowed host must not be contacted; empty if it may.

        `is_approved`: a person was asked about the host, which names it as a pattern does.
        """
        address = read_address(address.partition("%")[0]) or address
        denied = [pattern for pattern in self.denied if pattern != "*"]
        if any(matches(pattern, name) for name in list_equal_addresses(address) for pattern in denied):
            return f"its address {address} is in deniedDomains"
        if self.is_public(address) or address in self.allowed:
            return ""
        if (is_approved or host in self.allowed) and (host == address or LOCAL_NAME.fullmatch(host)):
            return ""
        return f"its address {address} is not public; add the address to sandbox.network.allowedDomains to allow it"


def read_patterns(texts: Iterable[str], warn: Callable[[str], None]) -> tuple[str, ...]:
    """Patterns from settings. One that is not valid is reported and left out."""
    found = []
    for text in texts:
        try:
            found.append(read_pattern(text))
        except InvalidHost as exc:
            warn(f"sandbox.network: {exc}; the entry is ignored")
    return tuple(dict.fromkeys(found))
