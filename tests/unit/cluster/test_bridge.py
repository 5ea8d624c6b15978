"""Frames of streams on the bus: their order, their loss, their limit, and who is still there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from parley.cluster.base import Request, SessionKey
from parley.cluster.bridge.gateway import Dialer, NotServed, StreamLost
from parley.cluster.bridge.host_stream import HostStream
from parley.cluster.bridge.messages import (
    WINDOW_BYTES,
    Accepted,
    Alive,
    BodyPart,
    BusFrame,
    Credit,
    FrameReceiver,
    FrameSender,
    LostFrame,
    OpenStream,
    Peers,
    WholeReply,
    decode_frame,
    decode_open,
    encode,
    make_stream_keys,
)
from parley.cluster.cluster_secret import BadSignature, ClusterSecret
from parley.cluster.gateway.router import Router
from parley.cluster.local import LocalBus, open_local
from parley.cluster.subjects import owner_subject
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal
from parley.gateway.subscriber import Batch

ADMIN = Principal.administrator("admin")


def frames(data: list[bytes]) -> list[BusFrame]:
    found = [decode_frame(each) for each in data]
    return [frame for frame in found if isinstance(frame, BusFrame)]


def test_a_long_content_is_cut_into_frames_and_joined() -> None:
    content = BodyPart(b"x" * 20_000, has_more=False)
    sent = frames(list(FrameSender("s", 8192).cut(content)))
    receiver = FrameReceiver()
    joined = [receiver.join(frame) for frame in sent]
    assert len(sent) > 3
    assert [each for each in joined if each is not None] == [content]
    assert max(len(frame.data) for frame in sent) < 8192


def test_a_lost_frame_is_noticed() -> None:
    sender, receiver = FrameSender("s", 8192), FrameReceiver()
    first, second, third = (frames(list(sender.cut(BodyPart(b"x", has_more=True))))[0] for _ in range(3))
    receiver.join(first)
    with pytest.raises(LostFrame):
        receiver.join(third)
    assert receiver.join(second) is not None


def test_a_frame_is_only_taken_from_the_other_end_and_at_its_place() -> None:
    keys = make_stream_keys(ClusterSecret(b"a secret of the tests"), "s", b"nonce")
    sender, receiver = FrameSender("s", 8192, keys.gateway), FrameReceiver(keys.gateway)
    first, second = (frames(list(sender.cut(BodyPart(text, has_more=True))))[0] for text in (b"x", b"y"))
    (other_end,) = frames(list(FrameSender("s", 8192, keys.host).cut(BodyPart(b"x", has_more=True))))
    replace = msgspec.structs.replace
    for forged in (other_end, replace(first, mac=b""), replace(first, data=second.data), replace(second, number=1)):
        with pytest.raises(BadSignature):
            receiver.join(forged)
    assert receiver.join(first) == BodyPart(b"x", has_more=True)
    again = make_stream_keys(ClusterSecret(b"a secret of the tests"), "s", b"another nonce")
    with pytest.raises(BadSignature):
        FrameReceiver(again.gateway).join(first)


class Stream:
    def __init__(self, received: int) -> None:
        self.stream, self.peer, self.received = "s", "them", received


def test_a_sign_of_life_says_what_was_lost() -> None:
    peers, stream = Peers(), Stream(received=3)
    peers.add(stream)
    assert peers.hear(Alive("them", {"s": 3}), [stream]) == []
    assert peers.hear(Alive("others", {}), [stream]) == []
    assert peers.hear(Alive("them", {"s": 4}), [stream]) == [stream]  # the last frame has not come
    assert peers.hear(Alive("them", {}), [stream]) == [stream]  # the other end has closed it


def test_a_sign_of_life_that_was_sent_before_a_stream_was_opened_says_nothing_about_it() -> None:
    peers, stream = Peers(), Stream(received=0)
    peers.add(stream)
    assert peers.hear(Alive("them", {}), [stream]) == []


async def test_a_host_keeps_a_limited_amount_for_a_client_that_does_not_read() -> None:
    async def wait_all() -> None:
        """Nothing has to be committed."""

    opened = OpenStream(stream="s", command="c", inbox="i", principal=ADMIN, kind="websocket", path="/ws")
    stream = HostStream(LocalBus(), opened, None, wait_all)
    line = b"x" * 10_000
    written = 0
    while stream.is_writable:
        stream.write_now(Batch([(None, line)]), numbered=False)
        written += len(line)
    assert written <= WINDOW_BYTES + len(line)
    for data in FrameSender("s", 8192).cut(Credit(written)):
        (frame,) = frames([data])
        stream.on_frame(frame)
    assert stream.is_writable


OPENED = OpenStream(stream="", command="c", inbox="", principal=ADMIN, kind="http", path="/sessions/s")


async def test_a_gateway_leaves_a_silent_host_when_another_one_takes_the_shard() -> None:
    bus = LocalBus()
    dialer, asked = Dialer(bus, "p"), asyncio.Event()

    async def say_nothing(_request: Request) -> None:
        asked.set()

    await dialer.start()
    await bus.subscribe("p.cmd.3.>", say_nothing)
    dialing = asyncio.create_task(dialer.dial("p.cmd.3.t.s", OPENED))
    await asked.wait()
    await bus.publish(owner_subject("p", 4), b"new")  # another shard
    await bus.publish(owner_subject("p", 3), b"new")
    with pytest.raises(NotServed):
        await dialing
    await dialer.close()


async def test_a_gateway_leaves_the_former_owner_when_another_one_takes_the_shard() -> None:
    bus = LocalBus()
    dialer = Dialer(bus, "p")

    async def accept(request: Request) -> None:
        await request.respond(encode(Accepted("one", "inbox of one")))

    await dialer.start()
    await bus.subscribe("p.cmd.3.>", accept)
    stream = await dialer.dial("p.cmd.3.t.s", OPENED)
    await bus.publish(owner_subject("p", 3), b"inbox of one")  # it has taken the shard again
    assert not stream.is_lost
    await bus.publish(owner_subject("p", 3), b"inbox of two")
    with pytest.raises(StreamLost):
        await stream.receive()
    await dialer.close()


async def test_a_deletion_that_a_silent_host_may_have_done_is_answered_as_done(tmp_path: Path) -> None:
    cluster = open_local(tmp_path / "cluster.db", shards=8, ttl_seconds=5)
    dialer, key, requests = Dialer(cluster.bus, "p"), SessionKey("t", "s"), list[OpenStream]()
    router, shard = Router(cluster, "p", dialer), key.shard(8)

    async def delete(request: Request) -> None:
        requests.append(decode_open(request.data))
        if len(requests) == 1:  # it deletes the session, but another host takes the shard before it says so
            await cluster.bus.publish(owner_subject("p", shard), b"inbox of two")
            return
        await request.respond(encode(Accepted("two", "inbox of two")))
        for data in FrameSender(requests[1].stream, 8192).cut(WholeReply(404, [])):
            await cluster.bus.publish(requests[1].inbox, data)

    await dialer.start()
    await cluster.bus.subscribe(f"p.cmd.{shard}.>", delete)
    reply = await router.call(msgspec.structs.replace(OPENED, method="DELETE", key=key))
    assert (reply.status, len(requests)) == (204, 2)
    await dialer.close()
    await cluster.close()


async def test_a_request_of_which_two_hosts_died_is_sent_to_no_third_one(tmp_path: Path) -> None:
    cluster = open_local(tmp_path / "cluster.db", shards=8, ttl_seconds=5)
    dialer, key, inboxes = Dialer(cluster.bus, "p"), SessionKey("t", "s"), list[str]()
    router, shard = Router(cluster, "p", dialer), key.shard(8)

    async def die(request: Request) -> None:
        inboxes.append(f"inbox {len(inboxes)}")
        await request.respond(encode(Accepted("host", inboxes[-1])))
        next_owner = f"inbox {len(inboxes)}".encode()
        asyncio.get_running_loop().call_soon(
            lambda: asyncio.ensure_future(cluster.bus.publish(owner_subject("p", shard), next_owner))
        )

    await dialer.start()
    await cluster.bus.subscribe(f"p.cmd.{shard}.>", die)
    with pytest.raises(Refusal) as refused:
        await router.call(msgspec.structs.replace(OPENED, method="POST", key=key))
    assert (refused.value.code, len(inboxes)) == ("hosts_failed", 2)
    await dialer.close()
    await cluster.close()
