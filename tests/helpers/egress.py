"""A network for the egress proxy: a name server with answers that change, servers that count who came, and clients."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import cast

from parley.workspace.sandbox.egress.proxy import EgressPolicy, EgressProxy, close_writer
from parley.workspace.url import is_public

APPROVED, CANARY = "127.0.0.1", "127.0.0.2"
"""The address that stands for a public one, and the one that nothing may contact."""


class LoopbackDns(asyncio.DatagramProtocol):
    """Answers every question for A records with TTL 0. A name without a list of answers is the canary."""

    def __init__(self) -> None:
        self.answers: dict[str, list[list[str]]] = {}
        """The answers of a name, one after the other; the last one stays."""
        self.asked: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        name, end = read_name(data)
        self.asked.append(name)
        turns = self.answers.get(name.lower(), [[CANARY]])
        addresses = turns.pop(0) if len(turns) > 1 else turns[0]
        head = data[:2] + struct.pack("!HHHHH", 0x8180, 1, len(addresses), 0, 0)
        records = [b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 0, 4) + socket.inet_aton(one) for one in addresses]
        self._transport.sendto(head + data[12 : end + 4] + b"".join(records), addr)


def read_name(data: bytes) -> tuple[str, int]:
    labels, index = [], 12
    while size := data[index]:
        labels.append(data[index + 1 : index + 1 + size].decode("latin-1"))
        index += size + 1
    return ".".join(labels), index + 1


async def query(port: int, host: str) -> list[str]:
    """Ask the name server, as a system resolver does: an address is its own answer."""
    with contextlib.suppress(OSError):
        return [socket.inet_ntoa(socket.inet_aton(host))]
    with contextlib.suppress(OSError):
        return [socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, host))]
    if host == "localhost":
        return [CANARY]
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", port))
        name = b"".join(bytes([len(label)]) + label.encode("latin-1") for label in host.split("."))
        await loop.sock_sendall(client, struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + name + b"\0\0\1\0\1")
        data = await loop.sock_recv(client, 512)
    count = struct.unpack_from("!H", data, 6)[0]
    records = data[len(data) - 16 * count :]
    return [socket.inet_ntoa(records[16 * n + 12 : 16 * n + 16]) for n in range(count)]


@dataclass
class EgressNetwork:
    """A proxy, the servers around it, and what reached them."""

    dns: LoopbackDns
    proxy: EgressProxy
    proxy_port: int
    port: int
    """The port of the servers, on every address."""
    policy: EgressPolicy
    contacts: list[str] = field(default_factory=list)
    """The addresses that were connected to, in order."""
    requests: list[bytes] = field(default_factory=list)
    ends_after_reply: bool = True
    reply: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"

    async def exchange(self, data: bytes) -> bytes:
        """Send bytes to the proxy and read to the end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.proxy_port)
        try:
            writer.write(data)
            if writer.can_write_eof():
                writer.write_eof()
            return await reader.read()
        except OSError:  # it was closed at once
            return b""
        finally:
            await close_writer(writer)

    async def get(self, host: bytes, *headers: bytes) -> bytes:
        lines = [b"GET http://%s:%d/x HTTP/1.1" % (host, self.port), b"Host: ignored", *headers]
        return await self.exchange(b"\r\n".join(lines) + b"\r\n\r\n")

    async def connect(self, host: bytes) -> bytes:
        """Open a tunnel and send a request through it."""
        return await self.exchange(b"CONNECT %s:%d HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n" % (host, self.port))

    async def socks(self, host: bytes) -> bytes:
        port = struct.pack("!H", self.port)
        named = bytes([3, len(host) % 256]) + host
        with contextlib.suppress(OSError, ValueError):
            named = b"\1" + socket.inet_pton(socket.AF_INET, host.decode())
        with contextlib.suppress(OSError, ValueError):
            named = b"\4" + socket.inet_pton(socket.AF_INET6, host.decode().strip("[]"))
        return await self.exchange(b"\5\1\0" + b"\5\1\0" + named + port + b"GET / HTTP/1.1\r\n\r\n")


@contextlib.asynccontextmanager
async def open_network(
    allowed: tuple[str, ...] = ("approved.test",),
    denied: tuple[str, ...] = (),
    **options: object,
) -> AsyncIterator[EgressNetwork]:
    """A proxy for these patterns. The approved address counts as public; everything else is judged as it is."""
    loop = asyncio.get_running_loop()
    transport, dns = await loop.create_datagram_endpoint(LoopbackDns, local_addr=("127.0.0.1", 0))
    dns_port = transport.get_extra_info("sockname")[1]
    dns.answers["approved.test"] = [[APPROVED]]
    policy = EgressPolicy(allowed=allowed, denied=denied, is_public=lambda found: found == APPROVED or is_public(found))
    proxy = EgressProxy(lambda: network.policy, resolve=lambda host, _: query(dns_port, host), **options)  # type: ignore[arg-type]
    listener = socket.create_server(("127.0.0.1", 0))
    network = EgressNetwork(dns, proxy, listener.getsockname()[1], 0, policy)
    servers: list[asyncio.Server] = []
    for address in (APPROVED, CANARY, "::1"):
        servers.append(await asyncio.start_server(count_visitors(network, address), address, network.port or None))
        network.port = network.port or servers[0].sockets[0].getsockname()[1]
    proxy.serve(listener)
    try:
        yield network
    finally:
        await proxy.close()
        transport.close()
        for server in servers:
            server.close()
            await server.wait_closed()


def count_visitors(
    network: EgressNetwork, address: str
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        network.contacts.append(address)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            network.requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(network.reply)
            if network.ends_after_reply:
                writer.write_eof()
            network.requests.append(await reader.read())
        await close_writer(writer)

    return serve
