"""Subscribers: what was missed, then what is new; slow readers; replies."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from parley.gateway.session_log.session_log import SessionLog
from parley.gateway.subscriber import MAX_REPLY_BYTES, REPLY, LineBatch, Numbered, Subscriber
from tests.helpers.patience import PATIENCE_SECONDS


@pytest.fixture
def log(tmp_path: Path) -> SessionLog:
    return SessionLog(tmp_path / "lines")


def publish(log: SessionLog, subscribers: list[Subscriber], line: bytes) -> None:
    number = log.add_line(line)
    for subscriber in subscribers:
        subscriber.offer(LineBatch([(number, line)]))


async def test_the_lines_that_were_missed_come_first(log: SessionLog) -> None:
    for line in (b"one", b"two", b"three"):
        log.add_line(line)
    subscriber = Subscriber(log, 1)
    assert await subscriber.take() == [(2, b"two"), (3, b"three")]
    waiting = asyncio.create_task(subscriber.take())
    await asyncio.sleep(0)
    publish(log, [subscriber], b"four")
    assert await waiting == [(4, b"four")]
    assert subscriber.cursor == 4


async def test_a_subscriber_does_not_get_back_what_it_sent(log: SessionLog) -> None:
    sender = Subscriber(log, 0, max_bytes=20)
    sender.skip(LineBatch([(log.add_line(b"mine, before the first take"), b"mine, before the first take")]))
    publish(log, [sender], b"answer")
    assert await sender.take() == [(2, b"answer")]
    waiting = asyncio.create_task(sender.take())
    await asyncio.sleep(0)
    sender.skip(LineBatch([(log.add_line(b"mine"), b"mine")]))
    publish(log, [sender], b"too much for the queue")
    assert await waiting == [(4, b"too much for the queue")]
    assert (sender.resyncs, sender.cursor) == (1, 4)


async def test_lines_that_are_not_stored_reach_only_those_who_are_there(log: SessionLog) -> None:
    early, late = Subscriber(log, 0), Subscriber(log, 0)
    waiting = asyncio.create_task(early.take())
    await asyncio.sleep(0)
    for subscriber in (early, late):
        subscriber.offer(LineBatch([(None, b"part")]))
    assert await waiting == [(None, b"part")]
    publish(log, [early, late], b"whole")
    assert await late.take() == [(1, b"whole")]


async def test_a_slow_subscriber_reads_the_log_and_loses_only_what_is_not_stored(log: SessionLog) -> None:
    subscriber = Subscriber(log, 0, max_bytes=20)
    waiting = asyncio.create_task(subscriber.take())
    await asyncio.sleep(0)
    publish(log, [subscriber], b"1")
    assert await waiting == [(1, b"1")]
    subscriber.send(b"reply")
    for number in range(2, 30):
        subscriber.offer(LineBatch([(None, b"part")]))
        publish(log, [subscriber], str(number).encode())
    assert subscriber.resyncs == 1
    found = []
    while subscriber.cursor < 29:
        found += await subscriber.take()
    assert found == [(REPLY, b"reply"), *((number, str(number).encode()) for number in range(2, 30))]


async def test_unwanted_lines_are_left_out_of_the_log_and_the_queue(log: SessionLog) -> None:
    log.add_line(b"no 1")
    log.add_line(b"yes 2")
    subscriber = Subscriber(log, 0, lambda line: line.startswith(b"yes"))
    assert await subscriber.take() == [(2, b"yes 2")]
    waiting = asyncio.create_task(subscriber.take())
    await asyncio.sleep(0)
    publish(log, [subscriber], b"no 3")
    publish(log, [subscriber], b"yes 4")
    assert await waiting == [(4, b"yes 4")]


async def test_a_closed_subscriber_ends_its_reader(log: SessionLog) -> None:
    subscriber = Subscriber(log, 0)
    waiting = asyncio.create_task(subscriber.take())
    await asyncio.sleep(0)
    subscriber.close()
    assert await waiting == []


async def test_whatever_the_pace_every_stored_line_comes_once_and_in_order(log: SessionLog) -> None:
    dice = Random(4)
    subscribers = [Subscriber(log, 0, max_bytes=dice.choice([5, 50, 5000])) for _ in range(6)]
    seen: list[list[int]] = [[] for _ in subscribers]

    async def read(at: int) -> None:
        while len(seen[at]) < 2000:
            seen[at] += [number for number, _ in await subscribers[at].take() if number]
            for _ in range(dice.randrange(4)):
                await asyncio.sleep(0)

    async def write() -> None:
        for number in range(2000):
            publish(log, subscribers, b"x" * dice.randrange(10))
            if dice.random() < 0.3:
                subscribers[0].offer(LineBatch([(None, b"part")]))
            if number % 7 == 0:
                await asyncio.sleep(0)

    async with asyncio.timeout(60):
        await asyncio.gather(write(), *(read(at) for at in range(len(subscribers))))
    assert seen == [list(range(1, 2001))] * len(subscribers)


async def test_lines_are_written_at_once_if_all_before_them_are(log: SessionLog) -> None:
    subscriber, written = Subscriber(log, 0), list[Numbered]()
    is_ready = True

    def write_now(batch: LineBatch) -> bool:
        if is_ready:
            written.extend(batch.lines)
        return is_ready

    subscriber.write_now = write_now
    publish(log, [subscriber], b"1")  # it has not read the log yet
    assert (written, await subscriber.take()) == ([], [(1, b"1")])
    publish(log, [subscriber], b"2")  # the first line is taken and may not be sent yet
    assert (written, await subscriber.take()) == ([], [(2, b"2")])
    waiting = asyncio.create_task(subscriber.take())
    await asyncio.sleep(0)
    subscriber.offer(LineBatch([(None, b"part"), (log.add_line(b"3"), b"3")]))
    assert (written, subscriber.cursor, waiting.done()) == ([(None, b"part"), (3, b"3")], 3, False)
    is_ready = False
    publish(log, [subscriber], b"4")
    is_ready = True
    publish(log, [subscriber], b"5")  # after line 4, which waits
    assert (await waiting, written[-1], subscriber.cursor) == ([(4, b"4"), (5, b"5")], (3, b"3"), 5)


async def test_lines_keep_their_order_whoever_writes_them(log: SessionLog) -> None:
    dice = Random(7)
    seen: list[int] = []
    subscriber = Subscriber(log, 0, max_bytes=2000)

    def see(lines: list[Numbered]) -> None:
        seen.extend(number for number, _ in lines if number)
        if len(seen) == 2000:
            subscriber.close()

    def write_now(batch: LineBatch) -> bool:
        if dice.random() < 0.3:
            return False
        see(batch.lines)
        return True

    async def read() -> None:
        subscriber.write_now = write_now
        while taken := await subscriber.take():
            for _ in range(dice.randrange(3)):  # as if the client were slow
                await asyncio.sleep(0)
            see(taken)

    async def write() -> None:
        for _ in range(2000):
            publish(log, [subscriber], b"x" * dice.randrange(10))
            if dice.random() < 0.5:
                await asyncio.sleep(0)

    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(read(), write())
    assert seen == list(range(1, 2001))


def test_a_batch_is_filtered_and_encoded_once_for_all() -> None:
    batch = LineBatch([(1, b"yes"), (None, b"no"), (2, b"yes")])
    calls: list[bytes] = []

    def wants(line: bytes) -> bool:
        calls.append(line)
        return line == b"yes"

    def encode(lines: list[Numbered]) -> bytes:
        calls.append(b"encode")
        return b"".join(line for _, line in lines)

    def all_lines(line: bytes) -> bool:
        return True

    for _ in range(3):
        assert batch.select(wants).encode(encode) == b"yesyes"
        assert batch.select(all_lines).encode(encode) == b"yesnoyes"
    assert calls == [b"yes", b"no", b"yes", b"encode", b"encode"]


async def test_a_subscriber_that_asks_and_does_not_read_is_closed(tmp_path: Path) -> None:
    subscriber = Subscriber(SessionLog(tmp_path / "lines"), 0)
    reply = b"x" * (MAX_REPLY_BYTES // 4)
    for _ in range(4):
        subscriber.send(reply)
    assert len(await subscriber.take()) == 4
    for _ in range(10):
        subscriber.send(reply)
    assert await subscriber.take() == []
    assert len(subscriber.take_replies()) <= 1
