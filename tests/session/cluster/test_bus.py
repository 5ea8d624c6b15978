"""What every bus does."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from parley.cluster.base import BusRequest, ClusterError, NoResponders
from tests.helpers.cluster_places import ClusterPlace

SECONDS = 30


async def test_a_request_gets_the_reply_of_the_one_who_listens(place: ClusterPlace) -> None:
    async def echo(request: BusRequest) -> None:
        await request.respond(request.subject.encode() + b" " + request.data)

    async with place.open() as cluster:
        subject = f"{place.prefix}.cmd.1.tenant.session"
        await cluster.bus.subscribe(f"{place.prefix}.cmd.1.>", echo)

        assert await cluster.bus.request(subject, b"\x00\xff", SECONDS) == subject.encode() + b" \x00\xff"


async def test_a_request_that_nobody_hears_fails_at_once(place: ClusterPlace) -> None:
    async def respond(request: BusRequest) -> None:
        await request.respond(b"")

    async with place.open() as cluster:
        subject = f"{place.prefix}.x"
        with pytest.raises(NoResponders, match=subject):
            await cluster.bus.request(subject, b"", SECONDS)
        unsubscribe = await cluster.bus.subscribe(subject, respond)
        assert await cluster.bus.request(subject, b"", SECONDS) == b""
        await unsubscribe()
        with pytest.raises(NoResponders):
            await cluster.bus.request(subject, b"", SECONDS)


async def test_a_request_without_a_reply_fails_at_its_timeout(place: ClusterPlace) -> None:
    async def ignore(_request: BusRequest) -> None: ...

    async with place.open() as cluster:
        subject = f"{place.prefix}.x"
        await cluster.bus.subscribe(subject, ignore)
        with pytest.raises(ClusterError, match=subject) as caught:
            await cluster.bus.request(subject, b"", 0.1)
        assert not isinstance(caught.value, NoResponders)


async def test_messages_of_one_sender_are_handled_in_order_and_one_after_the_other(place: ClusterPlace) -> None:
    received: list[bytes] = []
    is_busy = False
    is_known, done = asyncio.Event(), asyncio.Event()

    async def handle(request: BusRequest) -> None:
        nonlocal is_busy
        if request.data == b"known?":
            is_known.set()
            return
        assert not is_busy
        is_busy = True
        await asyncio.sleep(0)
        received.append(request.data)
        is_busy = False
        if request.data == b"199":
            done.set()

    async with place.open() as cluster, place.open() as other:
        sender = cluster.bus if place.kind == "local" else other.bus
        await cluster.bus.subscribe(f"{place.prefix}.*", handle)
        while not is_known.is_set():  # another server hears of a subscription a moment later
            await sender.publish(f"{place.prefix}.0", b"known?")
            with suppress(TimeoutError):
                await asyncio.wait_for(is_known.wait(), 0.05)
        for number in range(200):
            await sender.publish(f"{place.prefix}.{number % 7}", b"%d" % number)
        await done.wait()
        assert received == [b"%d" % number for number in range(200)]


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a.b", ["a.b"], ["a", "a.b.c", "a.c", "A.b"]),
        ("a.*", ["a.b", "a.-"], ["a", "a.b.c", "b.a"]),
        ("*.b", ["a.b"], ["b", "a.b.b"]),
        ("a.>", ["a.b", "a.b.c"], ["a", "b.a"]),
        ("a.*.>", ["a.b.c", "a.b.c.d"], ["a.b", "a"]),
    ],
)
async def test_a_star_is_one_word_and_an_angle_the_rest(
    place: ClusterPlace, pattern: str, matching: list[str], others: list[str]
) -> None:
    received: list[str] = []
    done = asyncio.Event()

    async def note(request: BusRequest) -> None:
        received.append(request.subject.removeprefix(f"{place.prefix}."))
        if len(received) == len(matching):
            done.set()

    async with place.open() as cluster:
        await cluster.bus.subscribe(f"{place.prefix}.{pattern}", note)
        for subject in [*others, *matching]:
            await cluster.bus.publish(f"{place.prefix}.{subject}", b"")
        await done.wait()
        assert received == matching


async def test_messages_that_arrived_before_the_end_of_a_subscription_are_handled(place: ClusterPlace) -> None:
    received: list[bytes] = []
    is_first = asyncio.Event()
    may_go_on = asyncio.Event()
    done = asyncio.Event()

    async def handle(request: BusRequest) -> None:
        is_first.set()
        await may_go_on.wait()
        received.append(request.data)
        if len(received) == 3:
            done.set()

    async def respond(request: BusRequest) -> None:
        await request.respond(b"")

    async with place.open() as cluster:
        subject = f"{place.prefix}.x"
        unsubscribe = await cluster.bus.subscribe(subject, handle)
        await cluster.bus.subscribe(f"{place.prefix}.pass", respond)
        for number in range(3):
            await cluster.bus.publish(subject, b"%d" % number)
        await cluster.bus.request(f"{place.prefix}.pass", b"", SECONDS)  # so the others have arrived, too
        await is_first.wait()
        ending = asyncio.create_task(unsubscribe())
        may_go_on.set()
        await ending
        await done.wait()
        await cluster.bus.publish(subject, b"late")
        await cluster.bus.request(f"{place.prefix}.pass", b"", SECONDS)
        assert received == [b"0", b"1", b"2"]


async def test_a_handler_that_fails_does_not_end_its_subscription(
    place: ClusterPlace, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(request: BusRequest) -> None:
        if not request.data:
            raise ValueError("cannot handle it")
        await request.respond(request.data)

    async with place.open() as cluster:
        await cluster.bus.subscribe(f"{place.prefix}.x", handle)
        await cluster.bus.publish(f"{place.prefix}.x", b"")
        assert await cluster.bus.request(f"{place.prefix}.x", b"good", SECONDS) == b"good"
    assert "cannot handle it" in caplog.text


async def test_a_message_has_a_length_limit(place: ClusterPlace) -> None:
    async def respond(request: BusRequest) -> None:
        await request.respond(request.data)

    async with place.open() as cluster:
        longest = b"x" * cluster.bus.max_payload_bytes
        await cluster.bus.subscribe(f"{place.prefix}.x", respond)
        assert await cluster.bus.request(f"{place.prefix}.x", longest, SECONDS) == longest
        with pytest.raises(ClusterError, match=f"up to {len(longest)} bytes"):
            await cluster.bus.publish(f"{place.prefix}.x", longest + b"x")
        with pytest.raises(ClusterError, match=f"up to {len(longest)} bytes"):
            await cluster.bus.request(f"{place.prefix}.x", longest + b"x", SECONDS)


async def test_a_task_that_sends_requests_can_be_cancelled_at_any_moment(place: ClusterPlace) -> None:
    async def respond(request: BusRequest) -> None:
        await request.respond(b"")

    async with place.open() as cluster:
        subject = f"{place.prefix}.x"
        await cluster.bus.subscribe(subject, respond)
        await cluster.registry.put("a", b"")

        async def ask_for_ever() -> None:
            while True:
                await cluster.bus.request(subject, b"", SECONDS)
                await cluster.registry.rows(">")

        tasks = [asyncio.create_task(ask_for_ever()) for _ in range(100)]
        for task in tasks:
            await cluster.bus.request(subject, b"", SECONDS)
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)


async def test_an_inbox_is_a_subject_of_its_own(place: ClusterPlace) -> None:
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def handle(request: BusRequest) -> None:
        await received.put(request.data)
        await request.respond(b"to nobody")

    async with place.open() as cluster:
        inbox = cluster.bus.new_inbox()
        assert inbox != cluster.bus.new_inbox()
        await cluster.bus.subscribe(inbox, handle)
        await cluster.bus.publish(inbox, b"frame")
        assert await received.get() == b"frame"
