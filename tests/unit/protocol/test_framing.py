"""Splitting bytes into lines, wherever the chunks end, with bounded memory."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.protocol.framing import BOM, INBOUND_CAP, Framer, Line, OverlongLine


def lines(data: bytes, cap_bytes: int = INBOUND_CAP) -> list[Line]:
    """The lines of a stream that arrives at once."""
    framer = Framer(cap_bytes)
    return framer.feed(data) + framer.end()


def test_a_line_ends_at_its_line_feed() -> None:
    framer = Framer()

    assert framer.feed(b'{"a":1}\n{"b"') == [b'{"a":1}']
    assert framer.feed(b":2}") == []
    assert framer.feed(b"\n") == [b'{"b":2}']
    assert framer.end() == []


def test_the_last_line_may_lack_its_line_feed() -> None:
    assert lines(b'{"a":1}\n{"b":2}') == [b'{"a":1}', b'{"b":2}']


def test_a_carriage_return_before_the_line_feed_is_dropped() -> None:
    assert lines(b'{"a":1}\r\n{"b":2}\r\n') == [b'{"a":1}', b'{"b":2}']


def test_a_carriage_return_alone_ends_no_line() -> None:
    assert lines(b'{"a":1,\r"b":2}\n') == [b'{"a":1,\r"b":2}']


@pytest.mark.parametrize("blank", [b"", b"\n", b"\r\n", b" \t \n", b"\n\n\n", BOM, BOM + b"\n"])
def test_a_blank_line_is_ignored(blank: bytes) -> None:
    assert lines(blank) == []


def test_a_byte_order_mark_is_dropped_at_the_start_of_the_stream_only() -> None:
    assert lines(BOM + b'{"a":1}\n' + BOM + b'{"b":2}\n') == [b'{"a":1}', BOM + b'{"b":2}']


def test_a_byte_order_mark_may_arrive_in_pieces() -> None:
    framer = Framer()

    assert framer.feed(BOM[:1]) + framer.feed(BOM[1:] + b"{") + framer.feed(b"}\n") == [b"{}"]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\x1e"])
def test_other_separators_are_ordinary_characters(separator: str) -> None:
    line = f'{{"a":"x{separator}y"}}'.encode()

    assert lines(line + b"\n") == [line]


def test_a_line_of_exactly_the_cap_is_read() -> None:
    assert lines(b"x" * 10 + b"\n", cap_bytes=10) == [b"x" * 10]


@pytest.mark.parametrize(
    "chunks",
    [
        [b"x" * 11 + b"\nafter\n"],
        [b"before\n" + b"x" * 11 + b"\nafter\n"],
        [b"x" * 6, b"x" * 6, b"x" * 600, b"\nafter\n"],
        [b"x" * 600, b"x" * 600 + b"\nafter", b"\n"],
        [b"x" * 9, b"xx\naf", b"ter\n"],
    ],
)
def test_an_over_long_line_is_reported_once_and_the_next_line_is_read(chunks: list[bytes]) -> None:
    framer = Framer(cap_bytes=10)
    found = [line for chunk in chunks for line in framer.feed(chunk)] + framer.end()

    over_long, after = (line for line in found if line != b"before")
    assert isinstance(over_long, OverlongLine)
    assert (over_long.cap_bytes, after) == (10, b"after")


def test_an_over_long_line_is_reported_before_it_ends() -> None:
    framer = Framer(cap_bytes=10)

    assert framer.feed(b"x" * 11) == [OverlongLine(cap_bytes=10, head=b"x" * 10)]
    assert framer.feed(b"x" * 11) + framer.end() == []


@pytest.mark.parametrize("piece_bytes", [1, 7, 5000])
@pytest.mark.parametrize("before", [b"", BOM])
def test_the_first_kilobyte_of_an_over_long_line_is_kept(piece_bytes: int, before: bytes) -> None:
    start = b'{"type":"user",' + bytes(65 + number % 26 for number in range(1009))
    data = before + start + b"x" * 3000 + b"\n" + b"y" * 4000 + b"\nend\n"
    framer = Framer(cap_bytes=2000)
    found = [line for at in range(0, len(data), piece_bytes) for line in framer.feed(data[at : at + piece_bytes])]

    kept = (start + b"x" * 3000)[: 1024 - len(before)]
    assert found == [OverlongLine(2000, kept), OverlongLine(2000, b"y" * 1024), b"end"]


def test_no_byte_order_mark_is_dropped_after_an_over_long_line() -> None:
    assert lines(b"x" * 11 + b"\n" + BOM + b"{}\n", cap_bytes=10)[1] == BOM + b"{}"


def test_an_over_long_line_is_drained_not_buffered() -> None:
    cap_bytes = 100_000
    framer = Framer(cap_bytes)
    tracemalloc.start()
    try:
        held_bytes = []
        for _ in range(50):
            framer.feed(bytes(40_000))
            held_bytes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()

    assert max(held_bytes) < cap_bytes + 20_000
    assert held_bytes[-1] < 20_000
    assert framer.feed(b"\nafter\n") == [b"after"]


def test_the_size_of_a_line_starts_again_after_each_line_feed() -> None:
    framer = Framer(cap_bytes=10)
    fed = [framer.feed(chunk) for chunk in (b"x" * 8, b"\n" + b"y" * 8, b"\n" + b"z" * 8, b"\n")]

    assert fed == [[], [b"x" * 8], [b"y" * 8], [b"z" * 8]]


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from([b"{}", b"\n", b"\r\n", b" ", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"x" * 7, b"x" * 30, b"\r"])
    ),
    st.data(),
)
def test_the_lines_do_not_depend_on_how_the_bytes_arrive(pieces: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    framer = Framer(cap_bytes=20)
    found: list[Line] = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += framer.feed(stream[begin:end])

    assert found + framer.end() == lines(stream, cap_bytes=20)
