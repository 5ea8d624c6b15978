"""Frames of streams on the bus: their order, their loss, their limit, and who is still there."""

from __future__ import annotations

import pytest

from parley.cluster.bridge.host_stream import HostStream
from parley.cluster.bridge.messages import (
    WINDOW_BYTES,
    Alive,
    BodyPart,
    BusFrame,
    Credit,
    FrameReceiver,
    FrameSender,
    LostFrame,
    OpenStream,
    decode_frame,
)
from parley.cluster.bridge.peers import Peers
from parley.cluster.local import LocalBus
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
