"""Frames: whole messages from any fragments, and errors for everything else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.workspace.remote import wire
from parley.workspace.remote.wire import BrokenFrame, WireFrame, WorkspaceChannel


def make_channel(data: bytes) -> WorkspaceChannel:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return WorkspaceChannel(reader, None)  # type: ignore[arg-type]  # nothing is written


def frame(*fields: Any) -> bytes:
    data = wire.encode_body(WireFrame(*fields))
    return wire.LENGTH.pack(len(data)) + data


async def receive_all(data: bytes) -> list[WireFrame]:
    channel, found = make_channel(data), list[WireFrame]()
    try:
        while True:
            found.append(await channel.receive())
    except (ConnectionError, BrokenFrame):
        return found


@given(st.binary(max_size=200))
def test_noise_is_no_message_and_ends(data: bytes) -> None:
    found = asyncio.run(receive_all(data))
    assert all(isinstance(one, WireFrame) for one in found)


async def test_fragments_of_several_messages_may_alternate() -> None:
    parts = [
        (2, 1, True, b"a"),
        (2, 2, True, b"x"),
        (wire.PING, 0, False, b""),
        (2, 1, False, b"b"),
        (2, 2, False, b"y"),
    ]
    assert await receive_all(b"".join(frame(*part) for part in parts)) == [
        WireFrame(2, 1, False, b"ab"),
        WireFrame(2, 2, False, b"xy"),
    ]


async def test_a_frame_that_is_too_long_or_cut_ends_the_connection() -> None:
    with pytest.raises(BrokenFrame, match="too long"):
        await make_channel(wire.LENGTH.pack(wire.MAX_FRAME_BYTES + 1)).receive()
    with pytest.raises(ConnectionError, match="in the middle of a frame"):
        await make_channel(frame(1, 1, False, b"body")[:-1]).receive()


async def test_too_many_unfinished_messages_end_the_connection() -> None:
    data = b"".join(frame(1, number, True, b"x") for number in range(wire.MAX_PARTIAL_MESSAGES + 1))
    with pytest.raises(BrokenFrame, match="incomplete"):
        await make_channel(data).receive()
