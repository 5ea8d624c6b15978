"""Parsing HTTP responses. `tests/stress/models/http_responses.py` compares the parser with h11."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.models.http.response import LONGEST_HEAD_BYTES, BadResponse, EventReader, ResponseParser

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


def chunked(*bodies: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(body), body) for body in bodies)


def feed_all(answer: bytes) -> None:
    response = ResponseParser()
    for start in range(0, len(answer), 4096):
        response.feed(answer[start : start + 4096])


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=12),
    st.lists(st.integers(min_value=0, max_value=300), max_size=12),
)
def test_a_body_is_whole_wherever_the_data_is_cut(bodies: list[bytes], places: list[int]) -> None:
    response = ResponseParser()

    body = b"".join(response.feed(data) for data in cut(CHUNKED + chunked(*bodies) + LAST, places) if data)

    assert body == b"".join(bodies)
    assert (response.status, response.is_complete, response.is_reusable) == (200, True, True)


def test_chunks_that_arrive_together_are_returned_together() -> None:
    response = ResponseParser()

    assert response.feed(CHUNKED + chunked(b"first", b"second") + b"6\r\nthi") == b"firstsecondthi"
    assert response.feed(b"rd!\r\n") == b"rd!"


def test_names_of_headers_are_lower_case_and_repeated_ones_are_joined() -> None:
    response = ResponseParser()
    response.feed(b"HTTP/1.1 529 Busy\r\nRetry-After:  3 \r\nX-A: 1\r\nx-a: 2\r\ncontent-length: 0\r\n\r\n")

    assert response.status == 529
    assert response.headers == {"retry-after": "3", "x-a": "1, 2", "content-length": "0"}


def test_interim_responses_are_skipped() -> None:
    response = ResponseParser()
    early = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"

    assert response.feed(early) == b""
    assert response.status is None
    assert response.feed(early + b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok") == b"ok"
    assert response.headers == {"content-length": "2"}


def test_a_body_without_length_ends_with_the_connection() -> None:
    response = ResponseParser()

    assert response.feed(b"HTTP/1.1 200 OK\r\n\r\nto the end") == b"to the end"
    assert not response.is_complete
    response.feed_eof()
    assert (response.is_complete, response.is_reusable) == (True, False)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nmore than was asked for",
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        CHUNKED[:-2] + b"content-length: 99\r\n\r\n" + LAST,
    ],
)
def test_a_connection_is_not_used_again_after_a_doubtful_answer(answer: bytes) -> None:
    response = ResponseParser()
    response.feed(answer)

    assert (response.is_complete, response.is_reusable) == (True, False)


def test_data_after_an_answer_makes_its_connection_unusable() -> None:
    response = ResponseParser()
    response.feed(CHUNKED + LAST)
    assert response.is_reusable

    assert response.feed(b"HTTP/1.1 200 OK\r\n\r\n") == b""
    assert not response.is_reusable


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the answer is not valid HTTP"),
        (b"HTTP/2.0 200 OK\r\n\r\n", "the answer is not HTTP/1.1 but HTTP/2.0"),
        (
            b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
            "the server switched to another protocol",
        ),
        (b"HTTP/1.1 099 x\r\ncontent-length: 0\r\n\r\n", "the answer has an invalid status: 99"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n", "unsupported transfer encoding: gzip"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\t\r\n\r\n", "unsupported transfer encoding: chunked"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n", "the answer is not valid HTTP"),
        (CHUNKED + b"2\r\nabc\r\n", "the answer is not valid HTTP"),
        (CHUNKED + b"zz\r\n", "the answer is not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * LONGEST_HEAD_BYTES, "the headers of the answer are longer than"),
        (CHUNKED + b"0\r\n" + b"x: y\r\n" * LONGEST_HEAD_BYTES, "the headers of the answer are longer than"),
    ],
)
def test_what_is_not_an_answer_is_refused(answer: bytes, problem: str) -> None:
    with pytest.raises(BadResponse, match=problem):
        feed_all(answer)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", "without an answer"),
        (b"HTTP/1.1 200 OK\r\ncontent-le", "without an answer"),
        (CHUNKED + chunked(b"half"), "before the answer was complete"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhalf", "before the answer was complete"),
    ],
)
def test_a_connection_that_ends_too_early_is_a_problem(answer: bytes, problem: str) -> None:
    response = ResponseParser()
    if answer:
        response.feed(answer)

    with pytest.raises(BadResponse, match=problem):
        response.feed_eof()


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
