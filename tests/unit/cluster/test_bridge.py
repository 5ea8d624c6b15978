"""Frames of streams on the bus: their order, their loss, their limit, and who is still there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from parley.cluster.base import BusRequest, LogKey
from parley.cluster.bridge.gateway import Dialer, NotServed, StreamLost
from parley.cluster.bridge.host_stream import HostStream
from parley.cluster.bridge.messages import (
    WINDOW_BYTES,
    Accepted,
    Alive,
    BodyPart,
    BusFrame,
    Credit,
    FrameContent,
    OpenStream,
    WholeReply,
    decode_frame,
    decode_open,
    encode,
    make_stream_keys,
)
from parley.cluster.bridge.streams import BusStream, StreamEnds
from parley.cluster.cluster_secret import NO_SECRET, BadSignature, ClusterSecret
from parley.cluster.gateway.router import Router
from parley.cluster.subjects import owner_subject
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal
from parley.gateway.subscriber import LineBatch
from tests.helpers.local_cluster import LocalBus, open_local

ADMIN = Principal.administrator("admin")


class End(BusStream):
    """An end of a stream that keeps what has come."""

    def __init__(self, send_key: bytes = b"", receive_key: bytes = b"", received: int = 0) -> None:
        bus = LocalBus()
        bus.max_payload_bytes = 8192
        super().__init__(bus, "s", "them")
        self.send_key, self.receive_key, self.received = send_key, receive_key, received
        self.taken: list[FrameContent] = []
        self.lost: list[str] = []

    def take(self, content: FrameContent) -> None:
        self.taken.append(content)

    def lose(self, reason: str, *, is_silent: bool = False) -> None:
        self.lost.append(reason)

    def frames(self, content: FrameContent) -> list[BusFrame]:
        found = [decode_frame(each) for each in self.cut(content)]
        return [frame for frame in found if isinstance(frame, BusFrame)]


def test_a_long_content_is_cut_into_frames_and_joined() -> None:
    content, end = BodyPart(b"x" * 20_000, has_more=False), End()
    sent = End().frames(content)
    for frame in sent:
        end.on_frame(frame)
    assert len(sent) > 3
    assert end.taken == [content]
    assert max(len(frame.data) for frame in sent) < 8192


def test_a_lost_frame_is_noticed() -> None:
    sender, end = End(), End()
    first, second, third = (sender.frames(BodyPart(b"x", has_more=True))[0] for _ in range(3))
    end.on_frame(first)
    end.on_frame(third)
    assert end.lost == ["frame 2 of a stream was lost on the bus"]
    end.on_frame(second)
    assert len(end.taken) == 2


def test_a_frame_is_only_taken_from_the_other_end_and_at_its_place() -> None:
    of_gateway, of_host = make_stream_keys(ClusterSecret(b"a secret of the tests"), "s", b"nonce")
    sender, end = End(send_key=of_gateway), End(receive_key=of_gateway)
    first, second = (sender.frames(BodyPart(text, has_more=True))[0] for text in (b"x", b"y"))
    (other_end,) = End(send_key=of_host).frames(BodyPart(b"x", has_more=True))
    replace = msgspec.structs.replace
    for forged in (other_end, replace(first, mac=b""), replace(first, data=second.data), replace(second, number=1)):
        with pytest.raises(BadSignature):
            end.on_frame(forged)
    end.on_frame(first)
    assert end.taken == [BodyPart(b"x", has_more=True)]
    again, _ = make_stream_keys(ClusterSecret(b"a secret of the tests"), "s", b"another nonce")
    with pytest.raises(BadSignature):
        End(receive_key=again).on_frame(first)


def watched(end: End) -> StreamEnds[End]:
    ends: StreamEnds[End] = StreamEnds(LocalBus(), NO_SECRET, "silent")
    ends.streams["s"] = end
    ends.watch(end)
    return ends


def test_a_sign_of_life_says_what_was_lost() -> None:
    end = End(received=3)
    ends = watched(end)
    ends.hear(Alive("them", {"s": 3}))
    ends.hear(Alive("others", {}))
    assert end.lost == []
    ends.hear(Alive("them", {"s": 4}))  # the last frame has not come
    assert len(end.lost) == 1
    ends.hear(Alive("them", {}))  # the other end has closed it
    assert len(end.lost) == 2


def test_a_sign_of_life_that_was_sent_before_a_stream_was_opened_says_nothing_about_it() -> None:
    end = End()
    watched(end).hear(Alive("them", {}))
    assert end.lost == []


async def test_a_host_keeps_a_limited_amount_for_a_client_that_does_not_read() -> None:
    async def wait_all() -> None:
        """Nothing has to be committed."""

    opened = OpenStream(stream="s", command="c", inbox="i", principal=ADMIN, kind="websocket", path="/ws")
    stream = HostStream(LocalBus(), opened, None, wait_all)
    line = b"x" * 10_000
    written = 0
    while stream.is_writable:
        stream.write_now(LineBatch([(None, line)]), numbered=False)
        written += len(line)
    assert written <= WINDOW_BYTES + len(line)
    for frame in End().frames(Credit(written)):
        stream.on_frame(frame)
    assert stream.is_writable


OPENED = OpenStream(stream="", command="c", inbox="", principal=ADMIN, kind="http", path="/sessions/s")


async def test_a_gateway_leaves_a_silent_host_when_another_one_takes_the_shard() -> None:
    bus = LocalBus()
    dialer, asked = Dialer(bus, "p"), asyncio.Event()

    async def say_nothing(_request: BusRequest) -> None:
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

    async def accept(request: BusRequest) -> None:
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
    dialer, key, requests = Dialer(cluster.bus, "p"), LogKey("t", "s"), list[OpenStream]()
    router, shard = Router(cluster, "p", dialer), key.shard(8)

    async def delete(request: BusRequest) -> None:
        requests.append(decode_open(request.data))
        if len(requests) == 1:  # it deletes the session, but another host takes the shard before it says so
            await cluster.bus.publish(owner_subject("p", shard), b"inbox of two")
            return
        await request.respond(encode(Accepted("two", "inbox of two")))
        for data in BusStream(cluster.bus, requests[1].stream).cut(WholeReply(404, [])):
            await cluster.bus.publish(requests[1].inbox, data)

    await dialer.start()
    await cluster.bus.subscribe(f"p.cmd.{shard}.>", delete)
    reply = await router.call(msgspec.structs.replace(OPENED, method="DELETE", key=key))
    assert (reply.status, len(requests)) == (204, 2)
    await dialer.close()
    await cluster.close()


async def test_a_request_of_which_two_hosts_died_is_sent_to_no_third_one(tmp_path: Path) -> None:
    cluster = open_local(tmp_path / "cluster.db", shards=8, ttl_seconds=5)
    dialer, key, inboxes = Dialer(cluster.bus, "p"), LogKey("t", "s"), list[str]()
    router, shard = Router(cluster, "p", dialer), key.shard(8)

    async def die(request: BusRequest) -> None:
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
