"""Parsing server-sent events, wherever the chunks end."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.models.http.sse import EventReader


def read(*chunks: bytes) -> list[bytes]:
    """The events of these chunks."""
    reader = EventReader()
    return [data for chunk in chunks for data in reader.feed(chunk)] + reader.end()


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    """The stream cut at these offsets. Equal offsets give empty pieces."""
    edges = [0, *sorted(min(place, len(stream)) for place in places), len(stream)]
    return [stream[begin:end] for begin, end in pairwise(edges)]


PLACES = st.lists(st.integers(min_value=0, max_value=200), max_size=40)
DATA = st.binary(min_size=1, max_size=20).map(lambda raw: raw.hex().encode())
NOISE = st.sampled_from([b"", b": ping\n", b"event: x\n", b"id: 7\n", b"retry: 10\n", b"datum: no\n", b"\n\n"])
BYTES = st.lists(st.sampled_from([b"data:", b" ", b"x", b"\n", b"\r", b"\r\n", b":", b"\n\n"]), max_size=30).map(
    b"".join
)


@given(st.lists(st.tuples(NOISE, DATA)), st.sampled_from([b"\n", b"\r\n", b"\r"]), PLACES)
def test_every_cut_of_a_stream_gives_its_events(
    events: list[tuple[bytes, bytes]], line_end: bytes, places: list[int]
) -> None:
    stream = b"".join(noise + b"data: " + data + b"\n\n" for noise, data in events).replace(b"\n", line_end)

    assert read(*cut(stream, places)) == [data for _, data in events]


@given(BYTES, PLACES)
def test_every_cut_of_any_bytes_gives_what_the_whole_gives(stream: bytes, places: list[int]) -> None:
    assert read(*cut(stream, places)) == read(stream)


def test_an_event_comes_out_with_the_byte_that_ends_it() -> None:
    reader = EventReader()

    assert [reader.feed(piece) for piece in (b"data: {", b"}\n", b"\n", b"data: 2\n\ndata: 3")] == [
        [],
        [],
        [b"{}"],
        [b"2"],
    ]
    assert reader.end() == [b"3"]
    assert reader.end() == []


@pytest.mark.parametrize(
    "pieces", [[b"data: a\r", b"\ndata: b\r\n\r\n"], [b"data: a\r", b"", b"\ndata: b\r\n\r", b"\n"]]
)
def test_a_line_end_cut_in_two_is_one_line_end(pieces: list[bytes]) -> None:
    assert read(*pieces) == [b"a\nb"]


def test_several_data_lines_are_joined_by_line_feeds() -> None:
    assert read(b"data: one\ndata: two\nevent: x\ndata:three\n\n") == [b"one\ntwo\nthree"]


def test_the_space_after_the_colon_is_optional() -> None:
    assert read(b"data:{}\n\ndata: {}\n\n") == [b"{}", b"{}"]


def test_comments_and_other_fields_are_skipped() -> None:
    assert read(b": data: no\n\nevent: data: no\nid: 1\n\nevent: message_stop\ndata: yes\n: late\n\n") == [b"yes"]


def test_data_may_contain_the_word_data() -> None:
    assert read(b'event: x\ndata: {"text":"data: 1"}\n\n') == [b'{"text":"data: 1"}']


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\r"])
def test_the_last_event_needs_no_blank_line(end: bytes) -> None:
    assert read(b"data: 1\n\ndata: 2" + end) == [b"1", b"2"]


@pytest.mark.parametrize("stream", [b"", b"\n", b"\n\n\n\n", b": only a comment", b"event: ping\n\n"])
def test_a_stream_without_data_has_no_events(stream: bytes) -> None:
    assert read(stream) == []


@pytest.mark.parametrize("pieces", [[b'{"a":\n\n"data: x"}'], [b"\n", b'{"a":\n', b'\n"data: x"}\n']])
def test_one_object_instead_of_a_stream_is_one_event(pieces: list[bytes]) -> None:
    assert read(*pieces) == [b'{"a":\n\n"data: x"}']
