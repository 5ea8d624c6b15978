"""Recordings of a conversation: writing, reading, and what is wrong with a broken one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parley.errors import UsageError
from parley.inspector.recorder import ConversationRecorder
from parley.stores.wire_recording import (
    Direction,
    KeptLine,
    WireHeader,
    WireLine,
    WireRecorder,
    read_wire_recording,
)
from parley.stores.wire_redaction import WireRedactor

HEADER = '{"parley_records":"conversation","version":1,"command":["claude"]}\n'
LINE = '{"n":1,"at_ms":1,"from":"client","line":"{}"}\n'
END = '{"n":2,"at_ms":2,"exit_code":0}\n'


def kept(at: float, direction: Direction, data: bytes, **more: bool) -> KeptLine:
    return KeptLine(record=(0, at, direction, len(data), None), data=data, **more)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    recorder = WireRecorder(path, WireHeader(command=("claude", "-p"), cwd="/srv"))
    recorder.add(kept(0.00123456, Direction.IN, '{"a": "é\u2028"}\r'.encode()))
    recorder.add(kept(0.002, Direction.OUT, b"\xff half", eol=False))
    recorder.add(kept(0.003, Direction.OUT, b"", eof=True))
    recorder.end(0.004, -9)
    found = read_wire_recording(path)

    assert found.header == WireHeader(command=("claude", "-p"), cwd="/srv")
    assert found.lines == [
        WireLine(1.235, "client", '{"a": "é\u2028"}\r'.encode(), number=2),
        WireLine(2, "engine", b"\xff half", eol=False, number=3),
        WireLine(3, "engine", b"", eof=True, number=4),
    ]
    assert found.exit_code == -9
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_text("mine")

    with pytest.raises(UsageError, match="already exists"):
        WireRecorder(path, WireHeader(command=("claude",)))
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "talk.jsonl is not a recording of a conversation: it has no header"),
        ("hello\n", "talk.jsonl is not a recording of a conversation: its first line is not a header"),
        (HEADER.replace("conversation", "model"), r", but a recording of a model \(for `--model replay:FILE`\)"),
        (HEADER.replace("1", "2"), "talk.jsonl has version 2; only version 1 is supported"),
        (HEADER.replace("command", "x") + LINE + END, ":1: object missing required field `command`"),
        (HEADER + LINE, ":3: found no exit code .* at the end: the recording is cut"),
        (HEADER + LINE + END[:-9], ":3: found no exit code .* at the end: the recording is cut"),
        (HEADER + LINE.replace("client", "clint") + END, r":2: invalid enum value 'clint' - at `\$.from`"),
        (HEADER + LINE.replace(":1,", ':"1",') + END, r":2: expected `int`, got `str` - at `\$.n`"),
        (HEADER + LINE.replace('"line"', '"lien"') + END, ':2: found no line, expected "from" and one of "line"'),
        (HEADER + LINE + LINE, ":3: found record 1, expected record 2"),
        (HEADER + END.replace("2", "1", 1) + LINE.replace("1", "2", 1), ":3: found a record after the exit code"),
        (HEADER + "[]\n" + END, ":2: expected `object`, got `array`"),
    ],
)
def test_a_broken_recording_is_refused_with_its_line(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_text(text)

    with pytest.raises(UsageError, match=error):
        read_wire_recording(path)


def test_a_cut_recording_can_be_read_up_to_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_text(HEADER + LINE + json.dumps({"at_ms": 2})[:5])
    found = read_wire_recording(path, allow_cut=True)

    assert ([line.data for line in found.lines], found.exit_code) == ([b"{}"], None)


def test_no_bytes_are_not_the_end_of_a_stream(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    recorder = ConversationRecorder(path, WireHeader(command=("claude",)), WireRedactor({}), lambda: 0.0)
    for data in (b"", b"half", b"", b" a line\nrest"):
        recorder.feed(Direction.OUT, data)
    recorder.end_stream(Direction.OUT)
    recorder.end(0)

    found = read_wire_recording(path).lines
    assert [(line.data, line.eol, line.eof) for line in found] == [
        (b"half a line", True, False),
        (b"rest", False, False),
        (b"", True, True),
    ]
