"""What a host does besides running turns: evict, copy, delete, balance, move, drain, leave alone."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import weakref
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from parley.cluster.base import Cluster, Fenced, LogDamaged, LogKey
from parley.cluster.host_sessions import NEW_SESSION_ID
from parley.cluster.session_log import VERSION, BatchMessage, read_log
from parley.cluster.session_summaries import list_summaries
from parley.cluster.shards import drain_key, host_key, list_hosts, move_key
from parley.cluster.subjects import row_key
from parley.gateway.hub import SERVER
from parley.gateway.session_log.records import NewerVersion
from parley.gateway.session_options import SessionOptions, SessionRequest
from tests.helpers.hosts import CutOwnership, RunningHost, find_host, started, stored_lines
from tests.helpers.local_cluster import open_local
from tests.helpers.patience import PATIENCE_SECONDS

SHARDS = 8
ALLOWS = ("--model", "offline", "--permission-mode", "bypassPermissions")


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return open_local(tmp_path / "cluster.db", shards=SHARDS, ttl_seconds=2.0)


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110  # of a host, which tells nobody
            await asyncio.sleep(0.01)


async def ask(running: RunningHost, key: LogKey, text: str) -> str:
    return str((await running.wait_result(key, await running.prompt(key, text)))["result"])


async def test_a_session_that_is_not_used_costs_nothing_and_comes_back(cluster: Cluster, tmp_path: Path) -> None:
    one = RunningHost(cluster, tmp_path, "one", idle_seconds=0)
    async with started(one):
        await one.wait_shards(SHARDS)
        key = await one.create()
        for number in range(20):
            assert await ask(one, key, f"say {number}") == str(number)
        before = await stored_lines(cluster, key)
        await wait_until(lambda: len(one.host.sessions) == 0)

        assert one.host.hub.list_ids() == [key.session]  # searches and costs know it
        assert not one.host.hub.log_path(key.session).exists()
        assert list((tmp_path / "one" / "logs").iterdir()) == []
        assert await cluster.log.load_snapshot(key) is not None
        assert await stored_lines(cluster, key) == before
        assert await ask(one, key, "say back") == "back"
        numbers = [line["result"] for line in await stored_lines(cluster, key) if line["type"] == "result"]
        assert numbers == [*map(str, range(20)), "back"]


async def test_what_lists_show_of_a_session_comes_with_it_and_its_words_by_and_by(
    cluster: Cluster, tmp_path: Path
) -> None:
    one = RunningHost(cluster, tmp_path, "one", idle_seconds=0)
    async with started(one):
        await one.wait_shards(SHARDS)
        key = await one.create()
        for number in range(20):
            await ask(one, key, f"say word{number}")
        await wait_until(lambda: len(one.host.sessions) == 0)
    two = RunningHost(cluster, tmp_path, "two")
    async with started(two):
        await find_host([two], key)
        async with two.host.sessions.use(key):
            hub = two.host.hub
            (row,) = hub.database.rows("SELECT * FROM sessions")  # nothing was indexed yet
            assert (row["turns"], row["preview"], row["title"]) == (20, "word19", "say word0")
            assert hub.indexer.search.find(SERVER, "word3") == {}
            await hub.indexer.catch_up(key.session)
            assert list(hub.indexer.search.find(SERVER, "word3")) == [key.session]
            assert len(hub.indexer.turns.of_session(key.session)) == 20
            assert hub.describe(SERVER, key.session).turns == 20


async def test_a_session_that_is_not_used_leaves_no_memory_behind(cluster: Cluster, tmp_path: Path) -> None:
    one = RunningHost(cluster, tmp_path, "one", idle_seconds=0)
    gc.disable()  # what is freed now is freed by the host
    try:
        async with started(one):
            await one.wait_shards(SHARDS)
            key = await one.create()
            await ask(one, key, "say hello")
            async with one.host.sessions.use(key) as hosted:
                parts: list[weakref.ref[object]] = [weakref.ref(hosted), weakref.ref(hosted.live)]
            del hosted
            await wait_until(lambda: not any(part() for part in parts))
    finally:
        gc.enable()


async def test_the_registry_lists_sessions_that_are_not_loaded(cluster: Cluster, tmp_path: Path) -> None:
    one = RunningHost(cluster, tmp_path, "one", idle_seconds=0)
    async with started(one):
        await one.wait_shards(SHARDS)
        key = await one.create()
        await ask(one, key, "say hello")
        await wait_until(lambda: len(one.host.sessions) == 0)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (rows := await list_summaries(cluster.registry)) or rows[0].has_work:  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.05)
        (row,) = rows

        assert row.info is not None
        assert (row.info.id, row.info.preview, row.info.turns, row.has_work) == (key.session, "hello", 1, False)


async def test_a_session_whose_host_died_before_it_was_listed_is_listed_by_the_next_one(
    cluster: Cluster, tmp_path: Path
) -> None:
    one = RunningHost(cluster, tmp_path, "one")
    async with started(one):
        await one.wait_shards(SHARDS)
        key = await one.create()
    await cluster.registry.delete(row_key("sessions", key, SHARDS))
    two = RunningHost(cluster, tmp_path, "two")
    async with started(two):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (rows := await list_summaries(cluster.registry)):  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.05)
        assert [row.info.id for row in rows if row.info is not None] == [key.session]


async def test_a_session_that_is_lost_while_it_is_created_leaves_nothing_behind(
    cluster: Cluster, tmp_path: Path
) -> None:
    one = RunningHost(cluster, tmp_path, "one")
    async with started(one):
        await one.wait_shards(SHARDS)
        key = LogKey(SERVER.tenant, id_in_shard(3))
        async with one.host.sessions.use(key) as hosted:
            NEW_SESSION_ID.set(key.session)
            one.host.hub.create(SERVER, SessionRequest(options=SessionOptions()))
            one.host.sessions.kill(hosted)  # its lease has ended
        assert one.host.hub.database.rows("SELECT * FROM sessions") == []
        assert await one.create(key.session) == key
        assert await ask(one, key, "say created") == "created"


async def test_a_copy_is_on_another_host_what_it_was_here(cluster: Cluster, tmp_path: Path) -> None:
    one = RunningHost(cluster, tmp_path, "one")
    async with started(one):
        await one.wait_shards(SHARDS)
        key = await one.create()
        await ask(one, key, "say original")
        async with one.host.sessions.use(key):
            copy = await one.host.hub.fork(SERVER, key.session, None, "")
        copied = LogKey(key.tenant, copy.id)
        assert copied.shard(SHARDS) == key.shard(SHARDS)
        await one.crash()
        two = RunningHost(cluster, tmp_path, "two")
        async with started(two):
            await find_host([two], copied)
            assert await ask(two, copied, "say more") == "more"

        lines = await stored_lines(cluster, copied)
        assert [line["result"] for line in lines if line["type"] == "result"] == ["original", "more"]
        loaded = await read_log(cluster.log, copied)
        kinds = [entry.kind for entry in loaded.state.transcripts[copied.session].entries]
        assert kinds.count("result") == 2


async def test_a_deleted_session_is_gone_for_every_host(cluster: Cluster, tmp_path: Path) -> None:
    one = RunningHost(cluster, tmp_path, "one")
    async with started(one):
        await one.wait_shards(SHARDS)
        key = await one.create()
        await ask(one, key, "say hello")
        async with one.host.sessions.use(key) as hosted:
            await one.host.hub.delete(SERVER, key.session)
            assert await hosted.closed == "deleted"
        assert await list_summaries(cluster.registry) == []
        await one.crash()
        two = RunningHost(cluster, tmp_path, "two")
        async with started(two):
            await find_host([two], key)
            async with two.host.sessions.use(key) as hosted:
                assert hosted.live is None


async def test_a_reply_to_a_command_survives_its_host(cluster: Cluster, tmp_path: Path) -> None:
    one = RunningHost(cluster, tmp_path, "one")
    async with started(one):
        await one.wait_shards(SHARDS)
        key = await one.create()
        async with one.host.sessions.use(key) as hosted:
            hosted.record_command("c1", b"done")
            await hosted.wait_committed()
        await one.crash()
        two = RunningHost(cluster, tmp_path, "two")
        async with started(two):
            await find_host([two], key)
            async with two.host.sessions.use(key) as hosted:
                assert hosted.state.commands.get("c1") == b"done"
                assert hosted.state.commands.get("c2") is None


async def test_a_new_host_gets_its_share_and_no_more_moves(cluster: Cluster, tmp_path: Path) -> None:
    one = RunningHost(cluster, tmp_path, "one")
    async with started(one):
        await one.wait_shards(SHARDS)
        before = await cluster.ownership.leases()
        two = RunningHost(cluster, tmp_path, "two")
        async with started(two):
            await two.wait_shards(SHARDS // 2)
            await one.wait_shards(SHARDS // 2)
            after = await cluster.ownership.leases()
            moved = [shard for shard in after if after[shard].epoch != before[shard].epoch]
            assert len(moved) == SHARDS // 2


async def test_a_lease_that_stays_after_its_time_is_taken(tmp_path: Path) -> None:
    stopped = open_local(tmp_path / "cluster.db", shards=SHARDS, ttl_seconds=1.0, clock=lambda: 0.0)
    one = RunningHost(stopped, tmp_path, "one")
    async with started(one):
        await one.wait_shards(SHARDS)
        key = await one.create()
        await one.crash()
        assert len(await stopped.ownership.leases()) == SHARDS
        two = RunningHost(stopped, tmp_path, "two")
        async with started(two):
            await two.wait_shards(SHARDS)
            assert await ask(two, key, "say here") == "here"


async def test_a_shard_is_moved_where_the_operator_wants_it(cluster: Cluster, tmp_path: Path) -> None:
    one, two = RunningHost(cluster, tmp_path, "one"), RunningHost(cluster, tmp_path, "two")
    async with started(one, two):
        await one.wait_shards(SHARDS // 2)
        await two.wait_shards(SHARDS // 2)
        shard = one.host.shards.owned()[0]
        await cluster.registry.put(move_key(shard), b"two")
        await wait_until(lambda: shard in two.host.shards.owned())


async def test_a_host_gives_up_its_shards_for_as_long_as_the_operator_wants(cluster: Cluster, tmp_path: Path) -> None:
    one, two = RunningHost(cluster, tmp_path, "one"), RunningHost(cluster, tmp_path, "two")
    async with started(one, two):
        await one.wait_shards(SHARDS // 2)
        await cluster.registry.put(drain_key("one"), b"")
        await two.wait_shards(SHARDS)
        assert one.host.shards.owned() == []
        await cluster.registry.delete(drain_key("one"))
        await one.wait_shards(SHARDS // 2)


async def test_a_host_that_drains_lets_a_turn_finish(cluster: Cluster, tmp_path: Path) -> None:
    one, two = RunningHost(cluster, tmp_path, "one"), RunningHost(cluster, tmp_path, "two")
    async with started(two):
        await one.wait_shards(SHARDS // 2)
        await two.wait_shards(SHARDS // 2)
        shard = one.host.shards.owned()[0]
        key = await one.create(id_in_shard(shard))
        uuid = await one.prompt(key, "wait 0.5\nsay done")
        await one.drain()
        await find_host([two], key)
        await two.wait_result(key, uuid)
        lines = await stored_lines(cluster, key)
        assert [(line["result"], "resume_reason" in line) for line in lines if line["type"] == "result"] == [
            ("done", False)
        ]
        assert list(await list_hosts(cluster.registry)) == ["two"]


def id_in_shard(shard: int) -> str:
    ids = (str(UUID(int=number, version=4)) for number in range(10_000))
    return next(found for found in ids if LogKey("", found).shard(SHARDS) == shard)


async def test_a_host_leaves_a_session_of_a_newer_version_alone(cluster: Cluster, tmp_path: Path) -> None:
    one = RunningHost(cluster, tmp_path, "one")
    async with started(one):
        await one.wait_shards(SHARDS)
        key = await one.create()
        other = await one.create()
        await one.crash()
    newer = BatchMessage(v=99, epoch=9, host="newer", data=b"")
    head = await cluster.log.head(key)
    written = await cluster.log.append(key, msgspec.msgpack.encode(newer), expected=head, message_id="n1")
    two = RunningHost(cluster, tmp_path, "two")
    async with started(two):
        await find_host([two], key)
        with pytest.raises(NewerVersion, match="version 99"):
            async with two.host.sessions.use(key):
                pass
        assert await cluster.log.head(key) == written
        assert two.host.describe().unreadable == {
            key.session: f"the log has records of version 99, this host reads up to version {VERSION}"
        }
        assert await ask(two, other, "say fine") == "fine"


async def test_a_shard_with_a_session_of_a_newer_version_goes_to_a_newer_host(cluster: Cluster, tmp_path: Path) -> None:
    one = RunningHost(cluster, tmp_path, "one")
    async with started(one):
        await one.wait_shards(SHARDS)
        key = LogKey(SERVER.tenant, id_in_shard(3))
        newer = BatchMessage(v=99, epoch=9, host="newer", data=b"")
        await cluster.log.append(key, msgspec.msgpack.encode(newer), expected=0, message_id="n1")
        with pytest.raises(NewerVersion):
            async with one.host.sessions.use(key):
                pass
        assert 3 in one.host.shards.owned()  # there is nobody else
        info = msgspec.structs.replace(one.host.describe(), name="newer", records=99, shards=[])
        await cluster.registry.put(host_key("newer"), msgspec.json.encode(info))
        await wait_until(lambda: 3 not in one.host.shards.owned())


async def test_a_session_whose_log_has_a_hole_is_left_alone_and_named(cluster: Cluster, tmp_path: Path) -> None:
    one = RunningHost(cluster, tmp_path, "one", idle_seconds=0)
    async with started(one):
        await one.wait_shards(SHARDS)
        key = await one.create()
        await ask(one, key, "say hello")
        await wait_until(lambda: len(one.host.sessions) == 0)
        with closing(sqlite3.connect(tmp_path / "cluster.db")) as database, database:
            database.execute(
                "DELETE FROM cluster_messages WHERE sequence = (SELECT min(sequence) + 1 FROM cluster_messages)"
            )
        with pytest.raises(LogDamaged, match="some are missing between"):
            async with one.host.sessions.use(key):
                pass
        assert list(one.host.describe().unreadable) == [key.session]
        other = await one.create()
        assert await ask(one, other, "say fine") == "fine"


async def test_a_zombie_that_believes_in_its_lease_writes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    leases = CutOwnership(cluster.ownership)
    cut_off = msgspec.structs.replace(cluster, ownership=leases)
    one = RunningHost(cut_off, tmp_path, "one", clock=lambda: 0.0)  # its lease never ends, by its own clock
    async with started(one):
        await one.wait_shards(SHARDS)
        key = await one.create()
        await ask(one, key, "say one")
        async with one.host.sessions.use(key) as zombie:
            leases.is_cut = True
            two = RunningHost(cluster, tmp_path, "two")
            async with started(two):
                await find_host([two], key)
                assert await ask(two, key, "say two") == "two"
                before = await stored_lines(cluster, key)
                with pytest.raises(Fenced):
                    await one.prompt(key, "say zombie")
                assert await zombie.closed == "moved"
                assert await stored_lines(cluster, key) == before


async def test_the_transcript_of_a_subagent_survives_its_host(cluster: Cluster, tmp_path: Path) -> None:
    one = RunningHost(cluster, tmp_path, "one", argv=ALLOWS)
    call = {"description": "greet", "prompt": "say hello from below", "subagent_type": "general-purpose"}
    async with started(one):
        await one.wait_shards(SHARDS)
        key = await one.create()
        text = await ask(one, key, f"call Agent {msgspec.json.encode(call).decode()}\nshow")
        assert "hello from below" in text
        await one.crash()
        two = RunningHost(cluster, tmp_path, "two", argv=ALLOWS)
        async with started(two):
            await find_host([two], key)
            async with two.host.sessions.use(key) as hosted:
                (agent,) = hosted.store.agents(key.session)
                said = [entry.kind for entry in hosted.store.read_agent(key.session, agent.id)]
        assert "assistant" in said
        assert agent.meta["agentType"] == "general-purpose"
