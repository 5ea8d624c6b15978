"""Records are collected, committed in batches, and refused when the session has another owner."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from parley.cluster.base import ClusterError, Fenced, LeaseLost, LogKey
from parley.cluster.session_log import BatchReader, SessionWriter, WriterSetup
from parley.gateway.session_log.records import AnyRecord, CommandRecord, LineRecord, OwnerRecord
from parley.stores.numbered_log import NumberedLog
from tests.helpers.local_cluster import open_local

KEY = LogKey("", "s")
OWNER = OwnerRecord(host="one", epoch=1)


class SlowLog:
    """A log whose appends wait, or fail, as a test wants."""

    def __init__(self, log: NumberedLog) -> None:
        self._log = log
        self.max_message_bytes = log.max_message_bytes
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures = 0
        self.calls: list[str] = []
        self._called = asyncio.Event()

    async def wait_calls(self, count: int) -> None:
        while len(self.calls) < count:
            self._called.clear()
            await self._called.wait()

    async def append(self, key: LogKey, data: bytes, *, expected: int, message_id: str) -> int:
        self.calls.append(message_id)
        self._called.set()
        await self.gate.wait()
        stored = await self._log.append(key, data, expected=expected, message_id=message_id)
        if self.failures:
            self.failures -= 1
            raise ClusterError("the reply was lost")
        return stored


class Setup:
    """A writer on a log in a file."""

    def __init__(self, folder: Path) -> None:
        self.log = open_local(folder / "cluster.db").log
        self.slow = SlowLog(self.log)
        self.errors: list[ClusterError] = []
        self.may_act = True
        self.marks = 0

    def writer(self, head: int = 0) -> SessionWriter:
        async def mark() -> None:
            self.marks += 1

        setup = WriterSetup(
            host="one",
            epoch=1,
            may_act=lambda: self.may_act,
            before_commit=mark,
            on_failure=self.errors.append,
            first=OWNER,
        )
        return SessionWriter(self.slow, KEY, head, setup)  # type: ignore[arg-type]  # the writer only appends

    async def batches(self) -> list[list[AnyRecord]]:
        reader = BatchReader()
        found = [reader.feed(data) async for _, data in self.log.read(KEY)]
        return [list(batch.records) for batch in found if batch is not None]


def command(number: int) -> CommandRecord:
    return CommandRecord(id=str(number), reply=b"")


async def test_what_arrives_while_a_write_is_under_way_shares_the_next_one(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    writer = setup.writer()
    setup.slow.gate.clear()
    first = writer.add(command(1))
    await setup.slow.wait_calls(1)
    writer.add(command(2))
    last = writer.add(command(3))
    setup.slow.gate.set()
    await writer.wait_committed(first)
    await writer.wait_committed(last)

    assert await setup.batches() == [[OWNER, command(1)], [command(2), command(3)]]
    assert setup.marks == 2
    await writer.close()


async def test_a_write_whose_reply_is_lost_is_stored_once(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    writer = setup.writer()
    setup.slow.failures = 2
    await writer.wait_committed(writer.add(command(1)))
    assert await setup.batches() == [[OWNER, command(1)]]
    assert len(setup.slow.calls) == 3
    assert len(set(setup.slow.calls)) == 1
    await writer.close()


async def test_a_batch_that_is_longer_than_a_message_is_committed_as_a_whole(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    writer = setup.writer()
    line = LineRecord(number=1, at=0.0, data=b"x" * 2_500_000)
    await writer.wait_committed(writer.add(line))
    assert await setup.batches() == [[OWNER, line]]
    assert writer.messages == 3
    await writer.close()


async def test_what_is_held_together_is_committed_together(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    writer = setup.writer()
    with writer.hold():
        writer.add(command(1))
        for _ in range(5):
            await asyncio.sleep(0)
        assert setup.slow.calls == []
        last = writer.add(command(2))
    await writer.wait_committed(last)
    assert await setup.batches() == [[OWNER, command(1), command(2)]]
    await writer.close()


async def test_another_owner_ends_the_writer_and_everybody_who_waits(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    writer = setup.writer()
    await writer.wait_committed(writer.add(command(1)))
    await setup.log.append(KEY, b"other", expected=writer.head, message_id="other")
    waiting = [asyncio.create_task(writer.wait_committed(writer.add(command(number)))) for number in (2, 3)]
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [Fenced, Fenced]
    assert [type(error) for error in setup.errors] == [Fenced]
    with pytest.raises(Fenced):
        writer.add(command(4))


async def test_nothing_is_acknowledged_after_the_lease(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    writer = setup.writer()
    position = writer.add(command(1))
    await writer.wait_committed(position)
    setup.may_act = False
    with pytest.raises(LeaseLost):
        await writer.wait_committed(position)
    assert len(setup.errors) == 1


async def test_a_thread_waits_for_the_log_and_gets_its_error(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    writer = setup.writer()
    await asyncio.to_thread(writer.wait_in_thread, writer.add(command(1)))
    setup.slow.gate.clear()
    waiting = asyncio.create_task(asyncio.to_thread(writer.wait_in_thread, writer.add(command(2))))
    await setup.slow.wait_calls(2)
    writer.fail(LeaseLost("the shard is gone"))
    with pytest.raises(LeaseLost):
        await waiting
    with pytest.raises(ClusterError, match="use --fsync turn"):
        writer.wait_in_thread(1)
