from __future__ import annotations

import json
from pathlib import Path

import pytest

from parley.cli.main import main
from parley.stores.wire_recording import Direction, KeptLine, WireHeader, WireRecorder


def run(capfdbinary: pytest.CaptureFixture[bytes], *words: str) -> tuple[str, str, int]:
    code = main(list(words))
    out, error = capfdbinary.readouterr()
    return out.decode(), error.decode(), code


def test_a_message_is_found_by_each_of_its_names(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    by_name = run(capfdbinary, "schema", "system/init")

    assert "export interface Init {" in by_name[0]
    assert by_name == run(capfdbinary, "schema", "init") == run(capfdbinary, "schema", "Init")
    assert "// The answer:\n" in run(capfdbinary, "schema", "can_use_tool")[0]
    assert json.loads(run(capfdbinary, "schema", "result", "--json")[0])["$ref"] == "#/$defs/Result"


def test_a_profile_has_its_messages_only(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    found = json.loads(run(capfdbinary, "schema", "--profile", "jsonrpc", "--json")[0])

    assert found["anyOf"] == [{"$ref": "#/$defs/JsonRpc"}]
    assert "| StreamEvent" in run(capfdbinary, "schema", "--profile", "partial-messages", "--typescript")[0]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["resul"], "unknown message 'resul' (did you mean result?)"),
        (["--profile", "x"], "unknown profile 'x' (choose from default, partial-messages,"),
        (["--json", "--typescript"], "--json and --typescript cannot be combined; use one"),
        (["--check", "nowhere"], "cannot read nowhere: No such file or directory"),
    ],
)
def test_what_is_wrong_is_named(words: list[str], error: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert error in run(capfdbinary, "schema", *words)[1]


def test_drift_is_reported_by_line(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    path = tmp_path / "talk.jsonl"
    recorder = WireRecorder(path, WireHeader(command=("claude",)))
    for data in (
        b'{"type":"keep_alive"}',
        b'{"type":"keep_alive","mood":1}',
        b"oops",
        b'{"type":"keep_alive","mood":2}',
    ):
        recorder.add(KeptLine(record=(0, 0.001, Direction.OUT, len(data), None), data=data))
    recorder.close()

    out, error, code = run(capfdbinary, "schema", "--check", str(path))

    assert out == "keep_alive: mood in 2 lines (#3, #5)\nnot JSON: line 4\n4 lines, 2 findings\n"
    assert (error, code) == (f"{path}:5: the recording is cut here; its end is missing\n", 1)
    found = json.loads(run(capfdbinary, "schema", "--check", str(path), "--json")[0])
    assert found["unknown"] == [{"message": "keep_alive", "path": "mood", "count": 2, "lines": [3, 5]}]


def test_a_recording_with_a_broken_line_is_refused_by_line(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_text(
        '{"parley_records": "conversation", "version": 1, "command": []}\n{"n": 1, "at_ms": 1, "from": "moon"}\n'
    )

    assert f"{path}:2: invalid enum value 'moon'" in run(capfdbinary, "inspect", str(path))[1]


def test_plain_lines_are_read_as_output(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text('{"type":"keep_alive"}\n\n{"type":"keep_alive"}\n')

    out, error, code = run(capfdbinary, "inspect", str(path))

    assert [text.split("#")[1] for text in out.splitlines()[:2]] == ["1  keep_alive  22 B", "3  keep_alive  22 B"]
    assert (error, code) == ("", 0)
