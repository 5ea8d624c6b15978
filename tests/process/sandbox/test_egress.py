"""What the egress proxy does besides judging spellings: questions, refusals, limits and the user's own proxies."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from parley.workspace.sandbox.base import HostRefusal
from parley.workspace.sandbox.egress.proxy import EgressLimits, OwnProxies, close_writer
from tests.helpers.egress import APPROVED, CANARY, EgressNetwork, open_network


async def test_a_refused_host_is_reported_once_with_its_reason() -> None:
    seen: list[HostRefusal] = []
    async with open_network(on_refusal=seen.append) as network:
        for send in (network.get, network.connect, network.socks):
            await send(b"evil.test")
        refusal = HostRefusal(
            "evil.test",
            network.port,
            "The sandbox refused the connection to evil.test: it is not in sandbox.network.allowedDomains.",
        )
        assert seen == [refusal]
        assert network.proxy.take_refusals() == [refusal]
        assert network.proxy.take_refusals() == []
        reply = await network.get(b"evil.test")
    assert reply.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert b"evil.test: it is not in sandbox.network.allowedDomains" in reply


async def test_a_denied_host_is_refused_without_a_question() -> None:
    asked: list[str] = []

    async def ask(host: str, port: int) -> bool:
        asked.append(host)
        return True

    async with open_network(allowed=("approved.test",), denied=("approved.test",), ask=ask) as network:
        assert b"deniedDomains" in await network.get(b"approved.test")
    assert not asked
    assert not network.contacts


async def test_all_connections_to_a_host_share_one_question() -> None:
    asked: list[tuple[str, int]] = []
    waiting, answer = asyncio.Event(), asyncio.Event()

    async def ask(host: str, port: int) -> bool:
        asked.append((host, port))
        waiting.set()
        await answer.wait()
        return True

    async with open_network(allowed=(), ask=ask) as network, asyncio.TaskGroup() as group:
        sending = [group.create_task(network.get(b"approved.test")) for _ in range(5)]
        await waiting.wait()
        answer.set()
        replies = [await task for task in sending]
        assert (await network.socks(b"Approved.Test")).endswith(b"hello")
    assert all(reply.endswith(b"hello") for reply in replies)
    assert asked == [("approved.test", network.port)]


async def test_an_allowed_answer_opens_a_private_address_only_for_a_local_name() -> None:
    async def ask(host: str, port: int) -> bool:
        return True

    async with open_network(allowed=(), ask=ask) as network:
        assert b"not public" in await network.get(b"evil.test")
        assert not network.contacts
        assert (await network.get(b"127.0.0.2")).endswith(b"hello")
        assert (await network.get(b"localhost")).endswith(b"hello")
    assert network.contacts == [CANARY] * 2


async def test_an_allowed_answer_holds_for_the_session() -> None:
    asked: list[str] = []

    async def ask(host: str, port: int) -> bool:
        asked.append(host)
        return True

    async with open_network(allowed=(), ask=ask) as network:
        for _ in range(3):
            assert (await network.get(b"approved.test")).endswith(b"hello")
            network.proxy.take_refusals()
    assert asked == ["approved.test"]


async def test_a_denied_answer_holds_until_the_refusals_are_taken() -> None:
    asked = 0

    async def ask(host: str, port: int) -> bool:
        nonlocal asked
        asked += 1
        return False

    async with open_network(allowed=(), ask=ask) as network:
        for _ in range(3):
            assert b"403" in await network.get(b"approved.test")
        assert asked == 1
        assert len(network.proxy.take_refusals()) == 1
        await network.get(b"approved.test")
    assert asked == 2


async def test_a_flood_of_unknown_hosts_does_not_become_a_flood_of_questions() -> None:
    asked: list[str] = []
    both, release = asyncio.Event(), asyncio.Event()

    async def ask(host: str, port: int) -> bool:
        asked.append(host)
        if len(asked) == 2:
            both.set()
        await release.wait()
        return False

    limits = EgressLimits(questions=2)
    async with open_network(allowed=(), ask=ask, limits=limits) as network, asyncio.TaskGroup() as group:
        waiting = [group.create_task(network.get(b"h%d.test" % number)) for number in range(2)]
        await both.wait()
        assert b"403" in await network.get(b"h3.test")
        release.set()
        assert [b"403" in await task for task in waiting] == [True, True]
    assert len(asked) == 2


async def test_rules_that_change_apply_to_the_next_connection() -> None:
    async with open_network(allowed=()) as network:
        assert b"403" in await network.get(b"approved.test")
        network.policy = type(network.policy)(allowed=("approved.test",), is_public=network.policy.is_public)
        assert (await network.get(b"approved.test")).endswith(b"hello")


async def test_a_tunnel_carries_bytes_both_ways_until_both_ends_close() -> None:
    async with open_network() as network:
        network.ends_after_reply = False
        reader, writer = await asyncio.open_connection("127.0.0.1", network.proxy_port)
        writer.write(b"CONNECT approved.test:%d HTTP/1.1\r\nUser-Agent: x\r\n\r\n" % network.port)
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        writer.write(b"one\r\n\r\n")
        assert await reader.readexactly(len(network.reply)) == network.reply
        writer.write(b"two" * 100_000)
        writer.write_eof()
        assert await reader.read() == b""
        await close_writer(writer)
    assert network.requests == [b"one\r\n\r\n", b"two" * 100_000]


async def test_too_many_connections_are_closed_at_once() -> None:
    async with open_network(limits=EgressLimits(connections=3)) as network:
        held = [await asyncio.open_connection("127.0.0.1", network.proxy_port) for _ in range(3)]
        assert b"hello" not in await network.get(b"approved.test")
        for _, writer in held:
            await close_writer(writer)
        while not (await network.get(b"approved.test")).endswith(b"hello"):
            pass


@pytest.mark.parametrize("data", [b"", b"GET http://approved", b"\x05\x01\0\x05"])
async def test_a_client_that_says_no_more_is_disconnected(data: bytes) -> None:
    async with open_network(limits=EgressLimits(head_seconds=0.05)) as network:
        reader, writer = await asyncio.open_connection("127.0.0.1", network.proxy_port)
        writer.write(data)
        with contextlib.suppress(ConnectionError):
            assert b"hello" not in await reader.read()
        await close_writer(writer)


async def test_an_idle_tunnel_is_closed() -> None:
    async with open_network(limits=EgressLimits(idle_seconds=0.05)) as network:
        reader, writer = await asyncio.open_connection("127.0.0.1", network.proxy_port)
        writer.write(b"CONNECT approved.test:%d HTTP/1.1\r\n\r\n" % network.port)
        assert await reader.read() == b"HTTP/1.1 200 Connection established\r\n\r\n"
        await close_writer(writer)


async def test_a_server_that_is_down_is_reported_as_unreachable() -> None:
    async with open_network() as network:
        network.port, port = 1, network.port
        assert (await network.get(b"approved.test")).startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
        assert (await network.socks(b"approved.test"))[2:4] == b"\x05\x04"
        assert network.proxy.take_refusals() == []
        network.port = port


async def test_the_users_own_proxies_get_the_connections_as_they_are() -> None:
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.read())
        writer.write(b"from your proxy")
        await close_writer(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    own = OwnProxies(http=server.sockets[0].getsockname()[1])
    async with open_network(own=own) as network:
        assert await network.connect(b"evil.test") == b"from your proxy"
        assert (await network.socks(b"approved.test")).endswith(b"hello"), "SOCKS5 has no own proxy"
        assert network.contacts == [APPROVED]
    server.close()
    assert got == [b"CONNECT evil.test:%d HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n" % network.port]


async def test_a_listener_can_be_closed_alone() -> None:
    async with open_network() as network:
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        stop = network.proxy.serve(listener)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await close_writer(writer)
        stop()
        while listener.fileno() >= 0:  # noqa: ASYNC110  # its task closes it
            await asyncio.sleep(0)
        assert (await network.get(b"approved.test")).endswith(b"hello")


async def test_close_ends_every_connection() -> None:
    async with open_network() as network:
        reader, writer = await open_tunnel(network)
        await network.proxy.close()
        assert await reader.read() == b""
        await close_writer(writer)
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", network.proxy_port)


async def open_tunnel(network: EgressNetwork) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", network.proxy_port)
    writer.write(b"CONNECT approved.test:%d HTTP/1.1\r\n\r\n" % network.port)
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer
