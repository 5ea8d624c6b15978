"""Subscribers: what was missed, then what is new; slow readers; replies."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from parley.gateway.line_log import LineLog
from parley.gateway.subscriber import REPLY, Batch, Subscriber


@pytest.fixture
def log(tmp_path: Path) -> LineLog:
    return LineLog(tmp_path / "lines")


def publish(log: LineLog, subscribers: list[Subscriber], line: bytes) -> None:
    number = log.append(line)
    for subscriber in subscribers:
        subscriber.offer(Batch([(number, line)]))


async def test_the_lines_that_were_missed_come_first(log: LineLog) -> None:
    for line in (b"one", b"two", b"three"):
        log.append(line)
    subscriber = Subscriber(log, 1)
    assert await subscriber.take() == [(2, b"two"), (3, b"three")]
    waiting = asyncio.create_task(subscriber.take())
    await asyncio.sleep(0)
    publish(log, [subscriber], b"four")
    assert await waiting == [(4, b"four")]
    assert subscriber.cursor == 4


async def test_a_subscriber_does_not_get_back_what_it_sent(log: LineLog) -> None:
    sender = Subscriber(log, 0, max_bytes=20)
    sender.skip(Batch([(log.append(b"mine, before the first take"), b"mine, before the first take")]))
    publish(log, [sender], b"answer")
    assert await sender.take() == [(2, b"answer")]
    waiting = asyncio.create_task(sender.take())
    await asyncio.sleep(0)
    sender.skip(Batch([(log.append(b"mine"), b"mine")]))
    publish(log, [sender], b"too much for the queue")
    assert await waiting == [(4, b"too much for the queue")]
    assert (sender.resyncs, sender.cursor) == (1, 4)


async def test_lines_that_are_not_stored_reach_only_those_who_are_there(log: LineLog) -> None:
    early, late = Subscriber(log, 0), Subscriber(log, 0)
    waiting = asyncio.create_task(early.take())
    await asyncio.sleep(0)
    for subscriber in (early, late):
        subscriber.offer(Batch([(None, b"part")]))
    assert await waiting == [(None, b"part")]
    publish(log, [early, late], b"whole")
    assert await late.take() == [(1, b"whole")]


async def test_a_slow_subscriber_reads_the_log_and_loses_only_what_is_not_stored(log: LineLog) -> None:
    subscriber = Subscriber(log, 0, max_bytes=20)
    waiting = asyncio.create_task(subscriber.take())
    await asyncio.sleep(0)
    publish(log, [subscriber], b"1")
    assert await waiting == [(1, b"1")]
    subscriber.send(b"reply")
    for number in range(2, 30):
        subscriber.offer(Batch([(None, b"part")]))
        publish(log, [subscriber], str(number).encode())
    assert subscriber.resyncs == 1
    found = []
    while subscriber.cursor < 29:
        found += await subscriber.take()
    assert found == [(REPLY, b"reply"), *((number, str(number).encode()) for number in range(2, 30))]


async def test_unwanted_lines_are_left_out_of_the_log_and_the_queue(log: LineLog) -> None:
    log.append(b"no 1")
    log.append(b"yes 2")
    subscriber = Subscriber(log, 0, lambda line: line.startswith(b"yes"))
    assert await subscriber.take() == [(2, b"yes 2")]
    waiting = asyncio.create_task(subscriber.take())
    await asyncio.sleep(0)
    publish(log, [subscriber], b"no 3")
    publish(log, [subscriber], b"yes 4")
    assert await waiting == [(4, b"yes 4")]


async def test_a_closed_subscriber_ends_its_reader(log: LineLog) -> None:
    subscriber = Subscriber(log, 0)
    waiting = asyncio.create_task(subscriber.take())
    await asyncio.sleep(0)
    subscriber.close()
    assert await waiting == []


async def test_whatever_the_pace_every_stored_line_comes_once_and_in_order(log: LineLog) -> None:
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
                subscribers[0].offer(Batch([(None, b"part")]))
            if number % 7 == 0:
                await asyncio.sleep(0)

    async with asyncio.timeout(60):
        await asyncio.gather(write(), *(read(at) for at in range(len(subscribers))))
    assert seen == [list(range(1, 2001))] * len(subscribers)
