"""The log of a session in a file: numbers, cursors, torn ends, damage, full devices."""

from __future__ import annotations

import os
import time
from pathlib import Path
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.errors import LogDamaged, SessionError
from parley.gateway.session_log.records import LineRecord, NewerVersion, TitledRecord
from parley.gateway.session_log.session_log import HEADER, MAGIC, READ_BYTES, SEARCH_BYTES, SessionLog

LINES = st.lists(st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"")), max_size=768)


def read_all(log: SessionLog, after: int = 0, max_bytes: int = 100) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while batch := log.read(found[-1][0] if found else after, max_bytes):
        found += batch
    return found


@given(lines=LINES, after=st.integers(min_value=-1, max_value=800), max_bytes=st.integers(min_value=0, max_value=5000))
def test_every_line_after_a_number_is_read_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], after: int, max_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "lines"
    log = SessionLog(path)
    assert [log.add_line(line) for line in lines] == list(range(1, len(lines) + 1))
    expected = list(enumerate(lines, 1))[max(after, 0) :]
    assert read_all(log, after, max_bytes) == expected
    log.close()
    again = SessionLog(path)
    assert again.last == len(lines)
    assert read_all(again, after, max_bytes) == expected
    assert again.add_line(b"next") == len(lines) + 1
    again.close()


def test_lines_longer_than_a_read_are_whole(tmp_path: Path) -> None:
    log = SessionLog(tmp_path / "lines")
    lines = [b"a" * 700_000, b"b", b"c" * 300_000]
    for line in lines:
        log.add_line(line)
    assert read_all(log) == list(enumerate(lines, 1))
    assert read_all(SessionLog(tmp_path / "lines")) == list(enumerate(lines, 1))


def test_a_torn_last_frame_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    log = SessionLog(path)
    log.add_line(b"one")
    log.add_line(b"two")
    log.close()
    whole = path.read_bytes()
    again = SessionLog(path)
    again.add_line(b"three", TitledRecord(title="never heard of"))
    again.close()
    torn = path.read_bytes()
    for size in range(len(whole), len(torn)):
        path.write_bytes(torn[:size])
        log = SessionLog(path)
        assert read_all(log) == [(1, b"one"), (2, b"two")]
        assert log.state.title == ""
        assert path.read_bytes() == whole
        assert log.add_line(b"next") == 3
        log.close()
    for end in (b"\0" * 5000, torn[len(whole) : -1] + b"?"):  # what a power failure may leave
        path.write_bytes(whole + end)
        log = SessionLog(path)
        assert log.last == 2
        assert path.read_bytes() == whole
        log.close()


def test_other_damage_is_reported_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    log = SessionLog(path)
    for line in (b"one", b"two", b"three"):
        log.add_line(line)
    log.close()
    data = bytearray(path.read_bytes())
    data[len(MAGIC) + HEADER.size + 5] ^= 1
    path.write_bytes(data)
    with pytest.raises(LogDamaged, match=r"lines is damaged after byte 8; restore it from a copy"):
        SessionLog(path)
    assert path.read_bytes() == data


def test_what_another_program_or_version_wrote_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"something else")
    with pytest.raises(SessionError, match="is not the log of a session that this Parley reads"):
        SessionLog(path)
    assert path.read_bytes() == b"something else"
    payload = msgspec.msgpack.encode([{"t": "budget", "usd": 1}])
    newer = MAGIC + HEADER.pack(len(payload), crc32(payload), 1) + payload
    path.write_bytes(newer)
    with pytest.raises(NewerVersion, match=r"unknown kinds \(budget\)"):
        SessionLog(path)
    assert path.read_bytes() == newer


def test_records_that_belong_together_are_stored_and_followed_together(tmp_path: Path) -> None:
    followed: list[object] = []
    log = SessionLog(tmp_path / "s.log", lambda log, records: followed.append((log.session_id, list(records))))
    log.record(TitledRecord(title="one"), TitledRecord(title="two"))
    assert followed == [("s", [TitledRecord(title="one"), TitledRecord(title="two")])]
    log.close()
    again = SessionLog(tmp_path / "s.log")
    assert again.state.title == "two"
    assert list(again.all_records()) == [TitledRecord(title="one"), TitledRecord(title="two")]
    again.close()


def test_the_file_is_private(tmp_path: Path) -> None:
    SessionLog(tmp_path / "lines").add_line(b"x")
    assert os.stat(tmp_path / "lines").st_mode & 0o777 == 0o600


def test_a_log_that_cannot_be_opened_or_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match=r"cannot open .*missing/lines: No such file or directory"):
        SessionLog(tmp_path / "missing" / "lines")
    log = SessionLog(tmp_path / "lines")
    log.close()
    with pytest.raises(SessionError, match=r"cannot write .*lines: Bad file descriptor"):
        log.add_line(b"x")


@given(lines=LINES, before=st.integers(min_value=0, max_value=800), limit=st.integers(min_value=1, max_value=300))
def test_the_lines_before_a_number_are_read(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], before: int, limit: int
) -> None:
    log = SessionLog(tmp_path_factory.mktemp("log") / "lines")
    for line in lines:
        log.add_line(line)

    def read_before(max_bytes: int) -> list[tuple[int, bytes]]:
        return [(line.number, line.data) for line in log.read_before(before, limit, max_bytes)]

    numbered = list(enumerate(lines, 1))[: max(before - 1, 0)]
    assert read_before(10**6) == numbered[-limit:]
    short = read_before(100)
    assert short == numbered[len(numbered) - len(short) :]
    assert len(short) <= 1 or sum(len(line) for _, line in short) <= 100
    assert bool(short) == bool(numbered)
    log.close()


def test_a_message_is_found_by_its_id(tmp_path: Path) -> None:
    log = SessionLog(tmp_path / "lines")
    for number in range(600):
        log.add_line(b'{"type":"user","other":"id-%d","uuid": "id-%d"}' % (number + 1, number))
    assert [log.find(f"id-{number}") for number in (0, 1, 599)] == [(1, None), (2, None), (600, None)]
    assert log.find("id-600") == (None, None)
    assert log.find("user") == (None, None)
    log.close()


def test_a_long_log_is_searched_in_parts(tmp_path: Path) -> None:
    log = SessionLog(tmp_path / "lines")
    log.add_line(b'{"uuid":"first","text":"wanted %s"}' % (b"x" * SEARCH_BYTES))
    log.add_line(b'{"text":"%s","uuid":"wanted"}' % (b"x" * READ_BYTES))
    log.add_line(b'{"uuid":"wanted"}')
    number, start = log.find("wanted")
    assert number is None
    assert start is not None
    assert log.find("wanted", start) == (2, None)
    log.close()


def test_lines_have_their_times_and_other_records_between_them(tmp_path: Path) -> None:
    log = SessionLog(tmp_path / "s.log")
    before = time.time()
    for number in range(5):
        log.record(TitledRecord(title=str(number)))
        log.add_line(b"{}")
    first, second = log.lines(1, 10**6, until=3)
    assert (first.number, second.number) == (2, 3)
    assert before <= first.at <= second.at <= time.time()
    assert log.line(4) == b"{}"
    assert [type(record) for record in log.all_records()] == [TitledRecord, LineRecord] * 5
    log.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_closed_log_does_not_write_to_the_file_that_is_opened_next(tmp_path: Path) -> None:
    closed = SessionLog(tmp_path / "first")
    closed.add_line(b"one")
    closed.close()
    other = SessionLog(tmp_path / "second")  # it gets the descriptor of the first
    with pytest.raises(SessionError):
        closed.add_line(b"two")
    with pytest.raises(SessionError):
        closed.read(0)
    closed.close()
    assert other.add_line(b"own") == 1
    assert read_all(other) == [(1, b"own")]
