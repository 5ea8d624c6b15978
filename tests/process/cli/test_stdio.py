"""Standard streams that are closed, full, never read, never written or non-blocking. The engine exits and says why."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from parley.cli.stdio import StderrWriter
from tests.helpers.patience import PATIENCE_SECONDS

PARLEY = str(Path(sys.executable).with_name("parley"))
STREAM = (PARLEY, "--output-format", "stream-json", "--verbose", "--input-format", "stream-json", "--model", "offline")
ASK = (PARLEY, "-p", "--model", "offline")
LONG = 300_000
"""More than a pipe holds."""


@contextmanager
def engine(*argv: str, cwd: Path, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A running engine, which is ended with the test."""
    process = subprocess.Popen(argv, cwd=cwd, **more)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def user_line(text: str) -> bytes:
    return json.dumps({"type": "user", "message": {"role": "user", "content": text}}).encode() + b"\n"


def readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], PATIENCE_SECONDS)[0])


def wait_until_full(descriptor: int) -> None:
    """Wait until more than half of an unread pipe is full: the engine is writing the rest of a long line."""
    capacity_bytes = fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ)
    pause = threading.Event()
    for _ in range(PATIENCE_SECONDS * 100):
        held = fcntl.ioctl(descriptor, 0x541B, b"\0\0\0\0")  # FIONREAD
        if int.from_bytes(held, sys.byteorder) > capacity_bytes // 2:
            return
        pause.wait(0.01)
    raise AssertionError("the pipe did not fill")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("is_over", [True, False])
def test_a_signal_ends_an_engine_whose_stdout_no_one_reads(
    tmp_path: Path, environment: dict[str, str], number: signal.Signals, code: int, is_over: bool
) -> None:
    with engine(
        *STREAM, cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(user_line("say " + "x" * LONG))
        process.stdin.flush()
        if is_over:
            process.stdin.close()
        wait_until_full(process.stdout.fileno())
        process.send_signal(number)
        assert process.wait(PATIENCE_SECONDS) == code
        assert process.stderr.read() == b""


def test_a_second_signal_ends_it_at_once(tmp_path: Path, environment: dict[str, str]) -> None:
    """The exit code shows that it was not the first signal that ended the engine."""
    with engine(*STREAM, cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(user_line("say " + "x" * LONG))
        process.stdin.flush()
        wait_until_full(process.stdout.fileno())
        for _ in range(PATIENCE_SECONDS * 20):
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
                break
        assert process.returncode == 130


def test_text_that_no_one_reads_does_not_outlive_a_signal(tmp_path: Path, environment: dict[str, str]) -> None:
    with engine(*ASK, cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"say " + b"x" * LONG)
        process.stdin.close()
        wait_until_full(process.stdout.fileno())
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) != 0


def test_an_unread_stderr_holds_nothing_up(tmp_path: Path, environment: dict[str, str]) -> None:
    with engine(
        *STREAM, cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"no json\n" * 5000 + user_line("say Hi"))
        process.stdin.close()
        assert readable(process.stdout.fileno())
        assert json.loads(process.stdout.read().splitlines()[-1])["result"] == "Hi"
        assert process.wait(PATIENCE_SECONDS) == 0


def test_warnings_that_do_not_fit_are_dropped_and_counted() -> None:
    reading, writing = os.pipe()
    complain = StderrWriter(writing)
    for number in range(100):
        complain(f"{number}: " + "x" * 10_000)
    first = os.read(reading, 1_000_000)
    complain("the end")
    second = os.read(reading, 1_000_000)
    os.close(reading)
    complain("to nobody")
    os.close(writing)
    complain("to nothing at all")

    whole = first.count(b"\n")
    assert 0 < whole < 100
    assert second == b"\n(%d earlier messages were dropped because stderr was not read)\nthe end\n" % (100 - whole)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("argv", [[*ASK, "say Hi"], [*STREAM], [PARLEY, "--version"], [PARLEY, "trust", "--list"]])
def test_a_closed_standard_stream_is_an_empty_one(
    tmp_path: Path, environment: dict[str, str], closed: str, argv: list[str]
) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *argv],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    if argv[1] == "-p" and ">&-" not in closed.replace("2>&-", ""):
        assert done.stdout == b"Hi\n"


def test_a_stdout_that_does_not_block_loses_nothing(tmp_path: Path, environment: dict[str, str]) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with engine(*ASK, cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stdout=writing) as process:
        assert process.stdin is not None
        os.close(writing)
        process.stdin.write(b"say " + b"x" * LONG)
        process.stdin.close()
        wait_until_full(reading)
        with os.fdopen(reading, "rb") as out:
            assert out.read() == b"x" * LONG + b"\n"
        assert process.wait(PATIENCE_SECONDS) == 0


@pytest.mark.parametrize(
    "argv",
    [
        (*ASK, "say Hi"),
        (*ASK, "--output-format", "json", "say Hi"),
        (*ASK, "--output-format", "stream-json", "--verbose", "say Hi"),
        (PARLEY, "--version"),
        (PARLEY, "--help"),
    ],
)
def test_a_full_disk_behind_stdout_is_one_sentence_and_exit_1(
    tmp_path: Path, environment: dict[str, str], argv: tuple[str, ...]
) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            argv,
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    assert done.stderr == b"Error: cannot write stdout: No space left on device\n"
    assert done.returncode == 1


def test_both_streams_block_again_when_the_engine_has_ended(tmp_path: Path, environment: dict[str, str]) -> None:
    stdin, asking = os.pipe()
    heard, stdout = os.pipe()
    with engine(*STREAM, cwd=tmp_path, env=environment, stdin=stdin, stdout=stdout) as process:
        os.write(asking, user_line("say Hi"))
        assert readable(heard)
        assert (os.get_blocking(stdin), os.get_blocking(stdout)) == (False, False)
        os.close(asking)
        assert process.wait(PATIENCE_SECONDS) == 0
    assert (os.get_blocking(stdin), os.get_blocking(stdout)) == (True, True)
    for descriptor in (stdin, stdout, heard):
        os.close(descriptor)


def test_a_prompt_does_not_wait_for_a_stdin_from_which_nothing_comes(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with engine(*ASK, "say Hi", cwd=tmp_path, env=environment, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.wait(PATIENCE_SECONDS) == 0
        assert process.stdout.read() == b"Hi\n"
        assert b"no data on stdin" in process.stderr.read()


def test_a_run_without_a_prompt_ends_although_stdin_stays_open(tmp_path: Path, environment: dict[str, str]) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with engine(*ASK, cwd=tmp_path, env=environment, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.wait(PATIENCE_SECONDS) == 1
        assert process.stdout.read() == b""
        warning, error = process.stderr.read().decode().splitlines()
    assert warning.startswith("warning: no data on stdin within 3 s")
    assert error.startswith("Error: Input must be provided either through stdin or as a prompt argument")


def test_ctrl_c_while_stdin_is_read_leaves_no_traceback(tmp_path: Path, environment: dict[str, str]) -> None:
    with engine(*ASK, cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        capacity_bytes = fcntl.fcntl(process.stdin.fileno(), fcntl.F_GETPIPE_SZ)
        # Start reading after more data was written than the pipe holds.
        process.stdin.write(b"x" * (2 * capacity_bytes))
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGINT
        assert process.stderr.read() == b""
