"""Parsing HTTP responses. `tests/stress/models/http_responses.py` compares the parser with h11."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.models.http.response import LONGEST_HEAD_BYTES, BadResponse, ResponseParser
from tests.unit.models.http.test_sse import cut

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
