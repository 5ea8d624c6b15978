"""Recordings of a conversation: writing, reading, and what is wrong with a broken one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parley.errors import UsageError
from parley.inspector.recording import WireHeader, WireLine, WireRecorder, read_wire_recording

HEADER = '{"parley_recording": 1, "command": ["claude"]}\n'
LINE = '{"at_ms": 1, "from": "client", "line": "{}"}\n'
END = '{"at_ms": 2, "exit_code": 0}\n'


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    recorder = WireRecorder(path, WireHeader(command=("claude", "-p"), cwd="/srv"))
    recorder.line(1.23456, "client", '{"a": "é\u2028"}\r'.encode())
    recorder.line(2, "engine", b"\xff half", eol=False)
    recorder.eof(3, "engine")
    recorder.end(4, -9)
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
        ("", ":1: found an empty file, expected a header"),
        ("hello\n", ":1: found 'hello'"),
        ('{"type": "tape"}\n', ":1: found .* use --model replay:FILE"),
        ('{"parley_recording": 2}\n', ":1: found version 2, expected version 1"),
        ('{"parley_recording": 1}\n', ':1: found .*`command`, expected a header with "command"'),
        (HEADER + LINE, ":3: found the end of the file, expected the last line"),
        (HEADER + LINE + END[:-9], ":3: found a line that is cut after 20 bytes, expected a whole line"),
        (HEADER + LINE.replace("client", "clint") + END, ":2: found \"from\": 'clint', expected one of client, engine"),
        (HEADER + LINE.replace("1", '"1"') + END, ':2: found "at_ms": "1", expected a number as "at_ms"'),
        (HEADER + LINE.replace('"line"', '"lien"') + END, ':2: found "line": null, expected a text as "line"'),
        (HEADER + END + LINE, ":2: found an exit code, and lines after it"),
        (HEADER + "[]\n" + END, r":2: found '\[\]', expected a JSON object"),
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
