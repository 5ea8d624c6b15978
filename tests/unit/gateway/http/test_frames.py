"""Frames that we encode ourselves, read by a WebSocket library."""

from __future__ import annotations

import pytest
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader

from parley.gateway.http.frames import encode_numbered, encode_plain
from parley.gateway.subscriber import REPLY


def read_frames(data: bytes) -> list[bytes]:
    """The texts of all frames, each a message of its own."""
    reader = StreamReader()
    texts: list[bytes] = []
    reader.feed_data(data)
    reader.feed_eof()
    while True:
        at_end = reader.at_eof()
        with pytest.raises(StopIteration) as ended:
            next(at_end)
        if ended.value.value:
            return texts
        parsing = Frame.parse(reader.read_exact, mask=False)
        with pytest.raises(StopIteration) as parsed:
            next(parsing)
        frame = parsed.value.value
        assert (frame.opcode, frame.fin, frame.rsv1) == (Opcode.TEXT, True, False)
        texts.append(bytes(frame.data))


@pytest.mark.parametrize("size", [2, 122, 123, 124, 125, 126, 60_000, 65_532, 65_533, 65_534, 65_535, 200_000])
def test_lines_of_any_length_arrive_whole(size: int) -> None:
    line = b"x" * size
    lines = [(7, line), (None, line), (REPLY, "ä".encode() * size), (123_456, b"{}")]

    assert read_frames(encode_plain(lines)) == [text + b"\n" for _, text in lines]
    assert read_frames(encode_numbered(lines)) == [
        b"7\t" + line + b"\n",
        b"\t" + line + b"\n",
        b"\t" + "ä".encode() * size + b"\n",
        b"123456\t{}\n",
    ]
