"""The log of lines: numbers, cursors, torn ends, full devices."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.errors import SessionError
from parley.gateway.line_log import READ_BYTES, SEARCH_BYTES, LineLog, remove_log

LINES = st.lists(st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"")), max_size=768)


def read_all(log: LineLog, after: int = 0, max_bytes: int = 100) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while batch := log.read(found[-1][0] if found else after, max_bytes):
        found += batch
    return found


@given(lines=LINES, after=st.integers(min_value=-1, max_value=800), max_bytes=st.integers(min_value=0, max_value=5000))
def test_every_line_after_a_number_is_read_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], after: int, max_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "lines"
    log = LineLog(path)
    assert [log.append(line) for line in lines] == list(range(1, len(lines) + 1))
    expected = list(enumerate(lines, 1))[max(after, 0) :]
    assert read_all(log, after, max_bytes) == expected
    log.close()
    again = LineLog(path)
    assert again.last == len(lines)
    assert read_all(again, after, max_bytes) == expected
    assert again.append(b"next") == len(lines) + 1
    again.close()


def test_lines_longer_than_a_read_are_whole(tmp_path: Path) -> None:
    log = LineLog(tmp_path / "lines")
    lines = [b"a" * 700_000, b"b", b"c" * 300_000]
    for line in lines:
        log.append(line)
    assert read_all(log) == list(enumerate(lines, 1))
    assert read_all(LineLog(tmp_path / "lines")) == list(enumerate(lines, 1))


def test_a_torn_last_line_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\nthr")
    log = LineLog(path)
    assert read_all(log) == [(1, b"one"), (2, b"two")]
    assert log.append(b"three") == 3
    assert path.read_bytes() == b"one\ntwo\nthree\n"


def test_the_file_is_private(tmp_path: Path) -> None:
    LineLog(tmp_path / "lines").append(b"x")
    assert os.stat(tmp_path / "lines").st_mode & 0o777 == 0o600


def test_a_log_that_cannot_be_opened_or_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match=r"cannot open .*missing/lines: No such file or directory"):
        LineLog(tmp_path / "missing" / "lines")
    log = LineLog(tmp_path / "lines")
    log.close()
    with pytest.raises(SessionError, match=r"cannot write .*lines: Bad file descriptor"):
        log.append(b"x")


@given(lines=LINES, before=st.integers(min_value=0, max_value=800), limit=st.integers(min_value=1, max_value=300))
def test_the_lines_before_a_number_are_read(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], before: int, limit: int
) -> None:
    log = LineLog(tmp_path_factory.mktemp("log") / "lines")
    for line in lines:
        log.append(line)
    numbered = list(enumerate(lines, 1))[: max(before - 1, 0)]
    assert log.read_before(before, limit, max_bytes=10**6) == numbered[-limit:]
    short = log.read_before(before, limit, max_bytes=100)
    assert short == numbered[len(numbered) - len(short) :]
    assert len(short) <= 1 or sum(len(line) for _, line in short) <= 100
    assert bool(short) == bool(numbered)
    log.close()


def test_a_message_is_found_by_its_id(tmp_path: Path) -> None:
    log = LineLog(tmp_path / "lines")
    for number in range(600):
        log.append(b'{"type":"user","other":"id-%d","uuid": "id-%d"}' % (number + 1, number))
    assert [log.find(f"id-{number}") for number in (0, 1, 599)] == [(1, None), (2, None), (600, None)]
    assert log.find("id-600") == (None, None)
    assert log.find("user") == (None, None)
    log.close()


def test_a_long_log_is_searched_in_parts(tmp_path: Path) -> None:
    log = LineLog(tmp_path / "lines")
    log.append(b'{"uuid":"first","text":"wanted %s"}' % (b"x" * SEARCH_BYTES))
    log.append(b'{"text":"%s","uuid":"wanted"}' % (b"x" * READ_BYTES))
    log.append(b'{"uuid":"wanted"}')
    number, start = log.find("wanted")
    assert number is None
    assert start is not None
    assert log.find("wanted", start) == (2, None)
    log.close()


def test_times_are_kept_and_lines_of_an_older_version_have_none(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"{}\n{}\n")
    log = LineLog(path)
    before = time.time()
    log.append(b"{}")
    log.append(b"{}")
    log.close()
    log = LineLog(path)
    first, second, third, fourth = log.times(1, 4)
    assert (first, second) == (None, None)
    assert third is not None
    assert fourth is not None
    assert before <= third <= fourth <= time.time()
    assert log.times(4, 6) == [fourth, None, None]
    log.close()
    remove_log(path)
    assert list(tmp_path.iterdir()) == []


def test_a_closed_log_does_not_write_to_the_file_that_is_opened_next(tmp_path: Path) -> None:
    closed = LineLog(tmp_path / "first")
    closed.append(b"one")
    closed.close()
    other = LineLog(tmp_path / "second")  # it gets the descriptor of the first
    with pytest.raises(SessionError):
        closed.append(b"two")
    with pytest.raises(SessionError):
        closed.read(0)
    closed.close()
    assert other.append(b"own") == 1
    assert (tmp_path / "second").read_bytes() == b"own\n"
