"""What every log of sessions does."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parley.cluster.base import ClusterError, Fenced, LogDamaged, LogKey, Snapshot
from parley.stores.numbered_log import NumberedLog
from tests.helpers.cluster_places import ClusterPlace, may_repeat

SHARDS = 8


def new_key() -> LogKey:
    # The database of PostgreSQL is the same for all tests.
    return LogKey("tenant", str(uuid.uuid4()))


async def read(log: NumberedLog, key: LogKey, after: int = 0) -> list[tuple[int, bytes]]:
    return [message async for message in log.read(key, after)]


async def append_all(log: NumberedLog, key: LogKey, *messages: bytes, head: int = 0) -> list[int]:
    sequences = []
    for data in messages:
        head = await log.append(key, data, expected=head, message_id=f"{head}-{data[:20]!r}")
        sequences.append(head)
    return sequences


async def test_messages_are_read_in_the_order_in_which_they_were_appended(log_place: ClusterPlace) -> None:
    messages = [b"one", b"", bytes(range(256)), "Grüße\r\n\u2028".encode()]
    key = new_key()
    async with log_place.open() as cluster:
        sequences = await append_all(cluster.log, key, *messages)

        assert sequences == sorted(set(sequences))
        assert sequences[0] > 0
        assert await read(cluster.log, key) == list(zip(sequences, messages, strict=True))
        assert await read(cluster.log, key, sequences[1]) == list(zip(sequences[2:], messages[2:], strict=True))
        assert await read(cluster.log, key, sequences[-1]) == []
        assert await read(cluster.log, new_key()) == []


async def test_a_log_is_there_when_the_cluster_is_opened_again(log_place: ClusterPlace) -> None:
    key = new_key()
    async with log_place.open() as cluster:
        (first,) = await append_all(cluster.log, key, b"one")
        await cluster.log.save_snapshot(key, Snapshot(first, b"state"))
    async with log_place.open() as cluster:
        assert await cluster.log.head(key) == first
        assert await cluster.log.load_snapshot(key) == Snapshot(first, b"state")
        assert (await append_all(cluster.log, key, b"two", head=first))[0] > first


async def test_a_repeated_append_stores_the_message_once(log_place: ClusterPlace) -> None:
    key = new_key()
    async with log_place.open() as cluster:
        first = await cluster.log.append(key, b"one", expected=0, message_id="a")

        assert await cluster.log.append(key, b"one", expected=0, message_id="a") == first
        second = await cluster.log.append(key, b"two", expected=first, message_id="b")
        assert await cluster.log.append(key, b"one", expected=0, message_id="a") == first
        assert await cluster.log.append(key, b"two", expected=first, message_id="b") == second
        assert await read(cluster.log, key) == [(first, b"one"), (second, b"two")]


async def test_appends_that_are_repeated_at_the_same_time_store_the_message_once(log_place: ClusterPlace) -> None:
    key = new_key()
    async with log_place.open() as cluster:
        found = await asyncio.gather(
            *(cluster.log.append(key, b"one", expected=0, message_id="a") for _ in range(5)), return_exceptions=True
        )
        # A repetition may find that the first call is not finished, and then it is repeated.
        assert [one for one in found if not isinstance(one, int) and not may_repeat(one)] == []
        sequence = await cluster.log.append(key, b"one", expected=0, message_id="a")
        assert {one for one in found if isinstance(one, int)} <= {sequence}
        assert await read(cluster.log, key) == [(sequence, b"one")]


async def test_a_writer_that_does_not_know_the_last_message_is_fenced(log_place: ClusterPlace) -> None:
    key = new_key()
    async with log_place.open() as cluster:
        first, second = await append_all(cluster.log, key, b"one", b"two")
        for expected in (0, first):
            with pytest.raises(Fenced, match=key.session):
                await cluster.log.append(key, b"other", expected=expected, message_id=f"other {expected}")
        assert await cluster.log.head(key) == second


async def test_an_id_that_another_message_has_is_fenced(log_place: ClusterPlace) -> None:
    key = new_key()
    async with log_place.open() as cluster:
        first = await cluster.log.append(key, b"one", expected=0, message_id="a")
        for data, expected in ((b"two", 0), (b"one", first), (b"two", first)):
            with pytest.raises(Fenced):
                await cluster.log.append(key, data, expected=expected, message_id="a")
        assert await read(cluster.log, key) == [(first, b"one")]


async def test_one_of_many_writers_at_the_same_time_succeeds(log_place: ClusterPlace) -> None:
    key = new_key()
    async with log_place.open() as cluster, log_place.open() as other:
        (head,) = await append_all(cluster.log, key, b"one")
        for _ in range(5):
            logs = [cluster.log, other.log] * 4
            results = await asyncio.gather(
                *(
                    log.append(key, b"%d" % number, expected=head, message_id=f"{head} {number}")
                    for number, log in enumerate(logs)
                ),
                return_exceptions=True,
            )
            # One that has not finished is not yet visible: to find it is an error that may be repeated.
            assert [one for one in results if not isinstance(one, int | Fenced) and not may_repeat(one)] == []
            (head,) = [one for one in results if isinstance(one, int)]
        messages = await read(cluster.log, key)
        assert len(messages) == 6
        assert messages[-1][0] == head


async def test_sessions_do_not_see_each_other(log_place: ClusterPlace) -> None:
    name = new_key().session
    keys = [LogKey(tenant, session) for tenant in ("a", "b", "a.b", "") for session in (name, f"{name}.x", "*", ">")]
    keys = [LogKey(f"{name} {key.tenant}", key.session) for key in keys]
    async with log_place.open(shards=SHARDS) as cluster:
        for key in keys:
            await cluster.log.append(key, repr(key).encode(), expected=0, message_id="same")
        for key in keys:
            assert [data for _, data in await read(cluster.log, key)] == [repr(key).encode()]
        found = [(shard, key) for shard in range(SHARDS) for key in await cluster.log.keys(shard)]
        ours = [(shard, key) for shard, key in found if key.tenant.startswith(name)]
        assert sorted(ours) == sorted((key.shard(SHARDS), key) for key in keys)


async def test_a_log_that_ends_before_what_the_caller_knows_is_damaged(log_place: ClusterPlace) -> None:
    key = new_key()
    async with log_place.open() as cluster:
        (head,) = await append_all(cluster.log, key, b"one")
        with pytest.raises(LogDamaged, match=r"lost messages of session .* the log ends at"):
            await cluster.log.append(key, b"two", expected=head + 5, message_id="b")
        with pytest.raises(LogDamaged, match=r"(NATS|PostgreSQL|database) "):
            await read(cluster.log, key, head + 5)
        assert await read(cluster.log, key) == [(head, b"one")]


async def test_reading_stops_at_the_last_message_of_its_start(log_place: ClusterPlace) -> None:
    key = new_key()
    async with log_place.open() as cluster:
        sequences = await append_all(cluster.log, key, b"one", b"two")
        found: list[int] = []
        async for sequence, _ in cluster.log.read(key):
            if not found:
                await append_all(cluster.log, key, b"three", head=sequences[-1])
            found.append(sequence)
        assert found == sequences


async def test_a_long_log_is_read_whole(log_place: ClusterPlace) -> None:
    if log_place.kind == "three servers":
        pytest.skip("reading is the same as from one server")
    key = new_key()
    # More than one page, or batch.
    messages = [b"%d" % number * 50 for number in range(1010 if log_place.kind == "nats" else 510)]
    async with log_place.open() as cluster:
        await append_all(cluster.log, key, *messages)
        assert [data for _, data in await read(cluster.log, key)] == messages


async def test_a_message_may_have_the_length_that_the_log_says_and_no_more(log_place: ClusterPlace) -> None:
    key = new_key()
    async with log_place.open() as cluster:
        longest = b"x" * cluster.log.max_message_bytes
        (head,) = await append_all(cluster.log, key, longest)
        with pytest.raises(ClusterError, match=f"up to {len(longest)} bytes"):
            await append_all(cluster.log, key, longest + b"x", head=head)
        assert await read(cluster.log, key) == [(head, longest)]


async def test_a_snapshot_replaces_messages_but_not_the_last_one(log_place: ClusterPlace) -> None:
    key = new_key()
    async with log_place.open() as cluster:
        log = cluster.log
        assert await log.load_snapshot(key) is None
        first, second, third = await append_all(log, key, b"one", b"two", b"three")
        await log.save_snapshot(key, Snapshot(second, b"state 2"))
        assert await log.load_snapshot(key) == Snapshot(second, b"state 2")
        assert await read(log, key, second) == [(third, b"three")]

        await log.save_snapshot(key, Snapshot(third, b"state 3"))
        await log.save_snapshot(key, Snapshot(first, b"older"))
        assert await log.load_snapshot(key) == Snapshot(third, b"state 3")
        assert await log.head(key) == third
        assert await read(log, key, third) == []
        with pytest.raises(LogDamaged, match="If there is a snapshot, read from it"):
            await read(log, key)

        (fourth,) = await append_all(log, key, b"four", head=third)
        assert await read(log, key, third) == [(fourth, b"four")]


@pytest.mark.parametrize("size_bytes", [0, 3_500_000])
async def test_a_snapshot_may_be_longer_than_a_message(log_place: ClusterPlace, size_bytes: int) -> None:
    key = new_key()
    data = b"0123456789" * (size_bytes // 10)
    async with log_place.open() as cluster:
        (head,) = await append_all(cluster.log, key, b"one")
        await cluster.log.save_snapshot(key, Snapshot(head, data))
        await cluster.log.save_snapshot(key, Snapshot(head, data))
        assert await cluster.log.load_snapshot(key) == Snapshot(head, data)


async def test_the_newest_of_snapshots_that_are_saved_at_the_same_time_stays(log_place: ClusterPlace) -> None:
    key = new_key()
    async with log_place.open() as cluster, log_place.open() as other:
        first, second = await append_all(cluster.log, key, b"one", b"two")
        results = await asyncio.gather(
            cluster.log.save_snapshot(key, Snapshot(first, b"1" * 2_500_000)),
            other.log.save_snapshot(key, Snapshot(second, b"2" * 2_500_000)),
            return_exceptions=True,
        )
        assert [one for one in results if one is not None and not may_repeat(one)] == []
        await other.log.save_snapshot(key, Snapshot(second, b"2" * 2_500_000))
        assert await cluster.log.load_snapshot(key) == Snapshot(second, b"2" * 2_500_000)
        assert await read(cluster.log, key, second) == []


async def test_a_deleted_session_has_nothing_and_can_begin_again(log_place: ClusterPlace) -> None:
    key, neighbour = new_key(), new_key()
    async with log_place.open(shards=1) as cluster:
        _, head = await append_all(cluster.log, key, b"one", b"two")
        await append_all(cluster.log, neighbour, b"other")
        await cluster.log.save_snapshot(key, Snapshot(head, b"state"))
        await cluster.log.delete(key)
        await cluster.log.delete(key)

        assert await cluster.log.head(key) == 0
        assert await cluster.log.load_snapshot(key) is None
        assert await read(cluster.log, key) == []
        keys = await cluster.log.keys(0)
        assert key not in keys
        assert neighbour in keys
        with pytest.raises(LogDamaged):
            await cluster.log.append(key, b"three", expected=head, message_id="late")
        with pytest.raises(LogDamaged):
            await cluster.log.save_snapshot(key, Snapshot(head, b"late"))
        assert await cluster.log.load_snapshot(key) is None
        (again,) = await append_all(cluster.log, key, b"new")
        assert again > head


class Model:
    """A log in a list."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, bytes]] = []
        self.appends: list[tuple[dict[str, Any], int]] = []
        self.snapshot: Snapshot | None = None

    @property
    def head(self) -> int:
        return self.messages[-1][0] if self.messages else 0


async def check_random_operations(log: NumberedLog, operations: list[tuple[str, int]]) -> None:
    key, model = new_key(), Model()
    for number, (operation, choice) in enumerate(operations):
        match operation:
            case "append":
                call: dict[str, Any] = {"data": b"%d" % choice, "expected": model.head, "message_id": f"{number}"}
                sequence = await log.append(key, **call)
                assert sequence > model.head
                model.messages.append((sequence, call["data"]))
                model.appends.append((call, sequence))
            case "repeat" if model.appends:
                earlier, sequence = model.appends[choice % len(model.appends)]
                # What a snapshot has replaced cannot be compared any more.
                if model.snapshot is None or sequence > model.snapshot.sequence:
                    assert await log.append(key, **earlier) == sequence
            case "stale" if len(model.messages) > 1:
                expected = model.messages[choice % (len(model.messages) - 1)][0]
                with pytest.raises(Fenced):
                    await log.append(key, b"stale", expected=expected, message_id=f"{number}")
            case "snapshot" if model.messages:
                snapshot = Snapshot(model.messages[choice % len(model.messages)][0], b"%d" % number)
                await log.save_snapshot(key, snapshot)
                if model.snapshot is None or snapshot.sequence >= model.snapshot.sequence:
                    model.snapshot = snapshot
            case "delete":
                await log.delete(key)
                model = Model()
        after = model.snapshot.sequence if model.snapshot else 0
        assert await log.head(key) == model.head
        assert await log.load_snapshot(key) == model.snapshot
        assert await read(log, key, after) == [one for one in model.messages if one[0] > after]


OPERATIONS = st.tuples(
    st.sampled_from(["append", "append", "append", "repeat", "stale", "snapshot", "delete"]), st.integers(0, 9)
)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=st.lists(OPERATIONS, min_size=8, max_size=16))
def test_random_operations_have_the_results_of_a_simple_model(
    log_place: ClusterPlace, operations: list[tuple[str, int]]
) -> None:
    async def run() -> None:
        async with log_place.open() as cluster:
            await check_random_operations(cluster.log, operations)

    asyncio.run(run())
