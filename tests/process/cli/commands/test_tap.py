"""`parley tap` between a client and an engine: what passes, what is recorded, and how both end."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from parley.stores.wire_recording import read_wire_recording

KEY = "sk-ant-api03-" + "x" * 40
DEADLINE_SECONDS = 60


@contextmanager
def tap(*words: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-P", "-m", "parley", "tap", *words]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, **options
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def send(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(data)


def receive(process: subprocess.Popen[bytes], size: int) -> bytes:
    assert process.stdout is not None
    found = b""
    while len(found) < size and (data := process.stdout.read(size - len(found))):
        found += data
    return found


def finish(process: subprocess.Popen[bytes]) -> tuple[bytes, str, int]:
    """The rest of stdout, stderr, and the exit code."""
    out, error = process.communicate(timeout=DEADLINE_SECONDS)
    return out, error.decode(), process.returncode


def test_bytes_pass_unchanged_and_at_once_and_are_recorded_without_secrets(tmp_path: Path) -> None:
    record, report = tmp_path / "talk.jsonl", tmp_path / "talk.html"
    long = b'"' + b"y" * 2_000_000 + b'"\n'
    with tap(
        "--record", str(record), "--html", str(report), "--", "cat", env={**os.environ, "MY_TOKEN": "open-sesame"}
    ) as process:
        send(process, b'{"type":"user","half":')
        assert receive(process, 22) == b'{"type":"user","half":'
        rest = b'1,"text":"open-sesame and ' + KEY.encode() + b'"}\n\xff\xfe\r\n'
        send(process, rest)
        assert receive(process, len(rest)) == rest
        for start in range(0, len(long), 50_000):  # the pipes between us do not hold more
            send(process, long[start : start + 50_000])
            assert receive(process, len(long[start : start + 50_000])) == long[start : start + 50_000]
        send(process, b"no newline")
        out, error, code = finish(process)

    assert (out, code) == (b"no newline", 0)
    recording = read_wire_recording(record)
    assert recording.header.command == ("cat",)
    assert "MY_TOKEN" in recording.header.env
    lines = {sender: [line for line in recording.lines if line.sender == sender] for sender in ("client", "engine")}
    for sent in lines.values():
        first, binary, longest, last, end = sent
        assert json.loads(first.data) == {"type": "user", "half": 1, "text": "[redacted] and [redacted]"}
        assert binary.data == b"\xff\xfe\r"
        assert longest.data == long[:-1]
        assert (last.data, last.eol, end.eof) == (b"no newline", False, True)
    for text in (error, report.read_text(), record.read_text()):
        assert "open-sesame" not in text
        assert KEY not in text
    assert "→ #2  user" in error
    assert record.stat().st_mode & 0o777 == report.stat().st_mode & 0o777 == 0o600


GARBAGE = 'echo oops; echo "{\\"type\\":\\"hologram\\"}"; echo broken >&2; printf half; exit 3'


def test_garbage_of_an_engine_that_exits_at_once_is_named_by_line() -> None:
    with tap("--", "sh", "-c", GARBAGE) as process:
        out, error, code = finish(process)

    assert (out, code) == (b'oops\n{"type":"hologram"}\nhalf', 3)
    assert "broken\n" in error
    assert "not JSON: oops" in error
    assert 'unknown: type="hologram"' in error
    assert "(no newline)" in error
    assert "exit code 3" in error
    assert "not JSON: 2 lines (#" in error


def test_a_request_that_is_never_answered_is_in_the_summary(tmp_path: Path) -> None:
    shown = tmp_path / "shown.txt"
    asked = {"type": "control_request", "request_id": "r1", "request": {"subtype": "initialize"}}
    with tap("--show", str(shown), "--", "sh", "-c", "cat > /dev/null") as process:
        send(process, json.dumps(asked).encode() + b"\n")
        _, error, code = finish(process)

    assert (error, code) == ("", 0)
    assert "without an answer: #2 control_request initialize" in shown.read_text()


def test_signals_and_the_code_of_the_engine_are_passed_on() -> None:
    with tap("--quiet", "--", "sh", "-c", 'trap "echo got it; exit 7" TERM; echo ready; read x') as process:
        assert receive(process, 6) == b"ready\n"
        process.send_signal(signal.SIGTERM)
        assert receive(process, 7) == b"got it\n"
        assert finish(process) == (b"", "", 7)
    with tap("--quiet", "--", "sh", "-c", "kill -USR1 $$") as process:
        assert finish(process)[2] == -signal.SIGUSR1


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open of Linux")
def test_the_engine_dies_with_the_tap(tmp_path: Path) -> None:
    record = tmp_path / "talk.jsonl"
    with tap("--quiet", "--record", str(record), "--", "sh", "-c", "echo $$; exec sleep 1000") as process:
        assert process.stdout is not None
        engine = os.pidfd_open(int(process.stdout.readline()))
        process.kill()
        ready, _, _ = select.select([engine], [], [], DEADLINE_SECONDS)
        os.close(engine)

    assert ready
    assert read_wire_recording(record, allow_cut=True).exit_code is None


def test_a_client_that_does_not_read_what_is_shown_is_not_held_up() -> None:
    line = b'{"type":"keep_alive"}\n' * 100
    with tap("--", "cat") as process:
        for _ in range(40):
            send(process, line)
            assert receive(process, len(line)) == line
        assert process.stdin is not None
        process.stdin.close()
        assert process.stdout is not None
        assert process.stdout.read() == b""
        assert process.wait(DEADLINE_SECONDS) == 0


def test_a_client_that_closes_its_end_ends_the_engine() -> None:
    with tap("--quiet", "--", "sh", "-c", "while echo tick; do :; done 2>/dev/null; exit 5") as process:
        assert receive(process, 5) == b"tick\n"
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        # A shell whose SIGPIPE is not ignored dies of it.
        assert process.wait(DEADLINE_SECONDS) in (5, -signal.SIGPIPE)


def test_what_cannot_be_written_or_started_is_said_before_anything_runs(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    with tap("--record", str(taken), "--", "touch", str(tmp_path / "started")) as process:
        _, error, code = finish(process)
    assert (error, code) == (
        f"Error: {taken} already exists; recordings are not overwritten: remove it, or name another file\n",
        1,
    )
    assert not (tmp_path / "started").exists()
    with tap("--quiet", "--", "no-such-engine") as process:
        _, error, code = finish(process)
    assert (error, code) == ("Error: cannot start the engine 'no-such-engine': No such file or directory\n", 1)


def test_an_installed_script_runs_the_same_command(tmp_path: Path) -> None:
    script, folder = tmp_path / "claude", tmp_path / "talks"
    folder.mkdir()
    with tap("--install", str(script), "--record", f"{folder}/", "--quiet", "--", "echo", "-n") as process:
        assert finish(process) == (f"{script}\n".encode(), "", 0)

    assert subprocess.run([script, "--print", "x y"], capture_output=True, check=True).stdout == b"--print x y"
    assert subprocess.run([script, "-v"], capture_output=True, check=True).stdout == b"-n -v"[3:]

    (found,) = folder.iterdir()
    assert read_wire_recording(found).header.command[1:] == ("-n", "--print", "x y")
