"""What happens when NATS is away, frozen, full, or restored from an older copy."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from parley.cluster.base import BusRequest, Cluster, ClusterError, LogDamaged, LogKey, NoResponders, RegistryRow
from parley.cluster.nats import DurabilityOptions, NatsAddress, NatsClusterOptions, open_nats
from parley.cluster.nats.connection import NatsConnection
from parley.cluster.nats.jetstream import EXPECTED, JetStream
from parley.cluster.nats.log import PREVIOUS
from parley.cluster.subjects import session_tokens
from tests.helpers.cluster_places import eventually
from tests.helpers.nats import NatsServer, nats_cluster, nats_server
from tests.helpers.ports import free_port

KEY = LogKey("tenant", "session")
SHARDS = 4
TTL_SECONDS = 2


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with nats_server(tmp_path) as server:
        yield server


@asynccontextmanager
async def connect(*servers: NatsServer) -> AsyncIterator[Cluster]:
    """A request fails after a second, half of the time to live."""
    options = NatsClusterOptions(
        shards=SHARDS,
        ttl_seconds=TTL_SECONDS,
        replicas=len(servers),
        durability=DurabilityOptions(accept_loss=True),
    )
    cluster = await open_nats(NatsAddress(url=",".join(server.url for server in servers)), options)
    try:
        yield cluster
    finally:
        await cluster.close()


async def append(cluster: Cluster, data: bytes, expected: int) -> int:
    """Repeats a call until it is known whether it was stored, as a host does."""
    return await eventually(lambda: cluster.log.append(KEY, data, expected=expected, message_id=data.decode()))


async def read(cluster: Cluster, after: int = 0) -> list[tuple[int, bytes]]:
    return [message async for message in cluster.log.read(KEY, after)]


async def test_a_server_that_is_not_there_is_named() -> None:
    address = NatsAddress(url=f"nats://user:secret@127.0.0.1:{free_port()}", connect_seconds=0.3)
    with pytest.raises(ClusterError, match=r"^NATS at 127\.0\.0\.1:\d+ does not answer: ") as caught:
        await open_nats(address, NatsClusterOptions())
    assert "secret" not in str(caught.value)


async def test_everything_works_again_after_the_server_was_killed(server: NatsServer) -> None:
    async def echo(request: BusRequest) -> None:
        await request.respond(request.data)

    async with connect(server) as cluster:
        first = await append(cluster, b"one", 0)
        lease = await cluster.ownership.acquire(1, "a")
        assert lease is not None
        await cluster.bus.subscribe("echo", echo)
        watch = cluster.registry.watch(">")
        assert await anext(watch) is None
        server.kill()

        with pytest.raises(ClusterError, match=r"^NATS at 127\.0\.0\.1:\d+ does not answer"):
            await cluster.log.append(KEY, b"two", expected=first, message_id="two")
        server.restart()
        second = await append(cluster, b"two", first)
        assert await read(cluster) == [(first, b"one"), (second, b"two")]
        assert await eventually(lambda: cluster.bus.request("echo", b"hello", 1)) == b"hello"
        assert (await cluster.ownership.renew(lease)).epoch == lease.epoch
        row = RegistryRow("a", b"1", await cluster.registry.put("a", b"1"))
        assert await anext(watch) == row
        await watch.aclose()  # type: ignore[attr-defined]  # it is a generator


async def test_a_subscription_that_ended_while_the_server_was_away_does_not_come_back(server: NatsServer) -> None:
    async def echo(request: BusRequest) -> None:
        await request.respond(request.data)

    async with connect(server) as cluster:
        end_ended = await cluster.bus.subscribe("ended", echo)
        end_hanging = await cluster.bus.subscribe("hanging", echo)
        server.freeze()
        await end_hanging()
        server.kill()
        await end_ended()
        server.restart()
        await append(cluster, b"one", 0)
        for subject in ("ended", "hanging"):
            with pytest.raises(NoResponders):
                await cluster.bus.request(subject, b"", 1)


async def test_a_write_to_a_frozen_server_is_stored_once(server: NatsServer) -> None:
    async with connect(server) as cluster:
        first = await append(cluster, b"one", 0)
        server.freeze()
        with pytest.raises(ClusterError, match=r"^NATS at 127\.0\.0\.1:\d+ does not answer"):
            await cluster.log.append(KEY, b"two", expected=first, message_id="two")
        server.thaw()
        second = await append(cluster, b"two", first)
        third = await append(cluster, b"three", second)
        assert await read(cluster) == [(first, b"one"), (second, b"two"), (third, b"three")]


async def test_a_lease_is_not_held_longer_because_the_server_was_frozen(server: NatsServer) -> None:
    async with connect(server) as cluster:
        lease = await cluster.ownership.acquire(1, "a")
        assert lease is not None
        server.freeze()
        with pytest.raises(ClusterError):
            await cluster.ownership.renew(lease)
        server.thaw()
        taken = await eventually(lambda: cluster.ownership.acquire(1, "b"))
        assert taken.epoch > lease.epoch


async def test_a_server_that_takes_no_more_data_does_not_block_its_client(server: NatsServer) -> None:
    async with connect(server) as cluster:
        server.freeze()
        frame = b"x" * 500_000

        async def flood() -> None:
            while True:
                await cluster.bus.publish("frames", frame)

        with pytest.raises(ClusterError, match="does not answer"):
            await flood()
        server.thaw()
        assert await append(cluster, b"one", 0)


async def test_a_full_store_refuses_new_messages_and_keeps_the_old_ones(tmp_path: Path) -> None:
    with nats_server(tmp_path, jetstream="max_file_store: 3MB") as server:
        async with connect(server) as cluster:
            stored: list[tuple[int, bytes]] = []

            async def fill() -> None:
                while True:
                    data = b"%d" % len(stored) + b"x" * 300_000
                    expected = stored[-1][0] if stored else 0
                    sequence = await cluster.log.append(KEY, data, expected=expected, message_id=f"{len(stored)}")
                    stored.append((sequence, data))

            old = LogKey("tenant", "old")
            await cluster.log.append(old, b"x" * 900_000, expected=0, message_id="x")
            with pytest.raises(ClusterError, match=r"^NATS at .* refuses: ") as caught:
                await fill()
            assert caught.value.error_code == "ENOSPC"
            assert len(stored) > 3
            assert await read(cluster) == stored

            await cluster.log.delete(old)
            assert await append(cluster, b"fits again", stored[-1][0])


async def test_an_owner_notices_a_server_that_was_restored_from_an_older_copy(server: NatsServer) -> None:
    other = LogKey("tenant", "other")
    async with connect(server) as cluster:
        first = await append(cluster, b"one", 0)
        server.stop()
        shutil.copytree(server.data, server.folder / "copy")
        server.restart()
        second = await append(cluster, b"two", first)
        await eventually(lambda: cluster.log.append(other, b"", expected=0, message_id="x"))
        server.stop()
        shutil.rmtree(server.data)
        (server.folder / "copy").rename(server.data)
        server.restart()

        async def is_noticed() -> bool:
            with pytest.raises(LogDamaged, match=r"^NATS at .* has lost messages: it is at \d+, but \d+ was stored"):
                await eventually(lambda: cluster.log.append(KEY, b"three", expected=second, message_id="three"))
            return True

        assert await is_noticed()
        # It is the same for sessions that have lost nothing: nobody knows which ones have.
        with pytest.raises(LogDamaged):
            await cluster.log.head(LogKey("tenant", "new"))
        with pytest.raises(LogDamaged):
            await read(cluster)
    async with connect(server) as cluster:
        # A process that knew nothing of it sees it from what it knows of the session: a snapshot, or a position.
        with pytest.raises(LogDamaged, match=r"of session session: the log ends at"):
            await read(cluster, second)
        assert await read(cluster) == [(first, b"one")]


async def test_an_append_notices_that_sequences_are_given_out_again(server: NatsServer) -> None:
    """Without a new connection: as if a cluster of servers had lost what a majority had acknowledged."""
    async with connect(server) as cluster:
        head = 0
        for number in range(3):
            head = await append(cluster, b"%d" % number, head)
        raw = NatsConnection(NatsAddress(url=server.url), 5)
        await raw.open()
        stream = JetStream(raw)
        config = (await stream.info("parley_log"))["config"]
        await stream.call("STREAM.DELETE.parley_log")
        await stream.call("STREAM.CREATE.parley_log", config)
        await raw.close()
        other = LogKey("tenant", "other")
        with pytest.raises(LogDamaged, match=rf"it is at 1, but {head} was stored"):
            await cluster.log.append(other, b"", expected=0, message_id="x")


async def test_a_missing_message_is_noticed_when_the_log_is_read(server: NatsServer) -> None:
    async with connect(server) as cluster:
        first = await append(cluster, b"one", 0)
        second = await append(cluster, b"two", first)
        raw = NatsConnection(NatsAddress(url=server.url), 5)
        await raw.open()
        # It follows a message that is not there.
        subject = f"parley.log.{session_tokens(KEY, SHARDS)}"
        headers = {EXPECTED: str(second), PREVIOUS: str(second + 1)}
        await JetStream(raw).store(subject, b"four", headers)
        await raw.close()

        with pytest.raises(LogDamaged, match=rf"of session session: some are missing between {second} and"):
            await read(cluster)


async def test_a_message_of_the_log_cannot_be_deleted(server: NatsServer) -> None:
    async with connect(server) as cluster:
        first = await append(cluster, b"one", 0)
        raw = NatsConnection(NatsAddress(url=server.url), 5)
        await raw.open()
        with pytest.raises(ClusterError, match="message delete not permitted"):
            await JetStream(raw).call("STREAM.MSG.DELETE.parley_log", {"seq": first})
        await raw.close()
        assert await read(cluster) == [(first, b"one")]


async def test_hosts_with_another_time_to_live_are_refused(server: NatsServer) -> None:
    async with connect(server):
        options = NatsClusterOptions(ttl_seconds=3, durability=DurabilityOptions(accept_loss=True))
        with pytest.raises(ClusterError, match=r"KV_parley_leases does not fit: max_age is 2000000000, not 3000000000"):
            await open_nats(NatsAddress(url=server.url), options)


async def find_leader(servers: list[NatsServer]) -> NatsServer:
    """The server that leads the stream of the log."""
    raw = NatsConnection(NatsAddress(url=servers[0].url), 5)
    await raw.open()
    name = (await JetStream(raw).info("parley_log"))["cluster"]["leader"]
    await raw.close()
    return next(server for server in servers if server.name == name)


async def test_three_servers_go_on_without_their_leader_but_not_without_two(tmp_path: Path) -> None:
    with nats_cluster(tmp_path) as servers:
        async with connect(*servers) as cluster:
            first = await append(cluster, b"one", 0)
            leader = await find_leader(servers)
            leader.kill()
            second = await append(cluster, b"two", first)

            other = next(server for server in servers if server is not leader)
            other.kill()
            with pytest.raises(ClusterError):
                await cluster.log.append(KEY, b"three", expected=second, message_id="three")
            for server in (leader, other):
                server.start()
            third = await append(cluster, b"three", second)
            stored = [(first, b"one"), (second, b"two"), (third, b"three")]
            assert await eventually(lambda: read(cluster)) == stored


async def test_a_client_leaves_a_frozen_server_for_another_one(tmp_path: Path) -> None:
    async def echo(request: BusRequest) -> None:
        await request.respond(request.data)

    with nats_cluster(tmp_path) as servers:
        # The servers tell a client of each other.
        async with connect(servers[0]) as cluster, connect(servers[1]) as other:
            await other.bus.subscribe("echo", echo)
            assert await eventually(lambda: cluster.bus.request("echo", b"1", 1)) == b"1"
            servers[0].freeze()
            assert await eventually(lambda: cluster.bus.request("echo", b"2", 1)) == b"2"
            servers[0].thaw()


async def test_a_slow_handler_does_not_lose_messages_silently(
    server: NatsServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley.cluster.nats.connection.PENDING_MESSAGES", 10)
    may_go_on = asyncio.Event()

    async def wait(request: BusRequest) -> None:
        await may_go_on.wait()

    async def respond(request: BusRequest) -> None:
        await request.respond(b"")

    async with connect(server) as cluster:
        await cluster.bus.subscribe("x", wait)
        await cluster.bus.subscribe("pass", respond)
        for _ in range(30):
            await cluster.bus.publish("x", b"")
        await cluster.bus.request("pass", b"", 5)
        assert "slow consumer" in caplog.text
        may_go_on.set()
