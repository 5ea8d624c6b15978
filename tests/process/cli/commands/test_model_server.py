"""`parley model-server` as a command."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.patience import PATIENCE_SECONDS
from tests.process.cli.conftest import PARLEY


@contextmanager
def served(folder: Path, environment: dict[str, str], *argv: str, end: int = signal.SIGTERM) -> Iterator[str]:
    """Yields the server's URL; at the end, checks that the server exits cleanly and printed nothing else."""
    command = [PARLEY, "model-server", "--quiet", *argv]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(end)
            stdout, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, stdout, stderr) == (0, "", "")


def asked(url: str, prompt: str) -> Any:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": prompt}]}
    request = urllib.request.Request(f"{url}/v1/messages", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as response:
        return json.load(response)["content"][0]["text"]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_reports_its_address_serves_and_ends_on_a_signal(
    tmp_path: Path, environment: dict[str, str], end: int
) -> None:
    with served(tmp_path, environment, end=end) as url:
        assert asked(url, "say Hi") == "Hi"


def test_our_own_engine_records_and_another_run_is_served_from_the_recording(
    tmp_path: Path, environment: dict[str, str], run: Any
) -> None:
    with served(tmp_path, environment) as url:
        live = run("-p", "--model", "m", "--record", "tape.jsonl", "say Hi", ANTHROPIC_BASE_URL=url)
    with served(tmp_path, environment, "--replay", "tape.jsonl") as url:
        again = run("-p", "--model", "m", "say Hi", ANTHROPIC_BASE_URL=url)
        over = run("-p", "--model", "m", "say Hi", ANTHROPIC_BASE_URL=url)
    with served(tmp_path, environment, "--replay", "tape.jsonl", "--in-order", "--pace", "1") as url:
        other = run("-p", "--model", "m", "say Ho", ANTHROPIC_BASE_URL=url)

    assert (live.stdout, again.stdout, other.stdout) == ("Hi\n", "Hi\n", "Hi\n")
    assert "API Error: 400 recording tape.jsonl has no more answers" in over.stdout


def test_a_port_that_is_taken_is_reported(run: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("model-server", "--port", str(taken.getsockname()[1]))

    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot listen on this port" in done.stderr


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--script", "none.toml"], "cannot read the script none.toml"),
        (["--script", "notes.txt"], "invalid script notes.txt"),
        (["--replay", "notes.txt"], "notes.txt is not a recording"),
        (["--fault", "earthquake"], "unknown fault 'earthquake'"),
        (["--port", "x"], "invalid value 'x' for option '--port'"),
        (["--port", "70000"], "invalid value '70000' for option '--port'"),
        (["--port"], "option '--port' needs a value"),
        (["--speed", "9"], "unknown option '--speed'"),
        (["--offline", "--script=x"], "--script, --replay and --offline cannot be combined"),
        (["--pace", "1"], "--in-order and --pace require --replay"),
    ],
)
def test_what_cannot_be_served_is_reported_in_one_sentence(
    run: Any, tmp_path: Path, argv: list[str], said: str
) -> None:
    (tmp_path / "notes.txt").write_text("notes\n")
    done = run("model-server", *argv)

    first, *usage = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2 if usage else 1, "")
    assert said in first
    assert all(line.startswith("Usage: parley model-server ") for line in usage)


def test_every_request_is_logged_to_stderr_unless_it_is_quiet(tmp_path: Path, environment: dict[str, str]) -> None:
    with subprocess.Popen(
        [PARLEY, "model-server", "--fault", "reset=1@2"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert asked(url, "say Hi") == "Hi"
        with pytest.raises((ConnectionError, OSError)):
            asked(url, "say Ho")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{url}/nowhere", timeout=PATIENCE_SECONDS)
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate(timeout=PATIENCE_SECONDS)

    assert (process.returncode, stdout) == (0, "")
    served, broken, unknown = stderr.splitlines()
    assert re.fullmatch(r"POST /v1/messages 200, \d+ bytes received, \d+ ms", served)
    assert re.fullmatch(r"POST /v1/messages .*, \d+ bytes received, \d+ ms \(incomplete\)", broken)
    assert re.fullmatch(r"GET /nowhere 404, 0 bytes received, \d+ ms", unknown)


def test_help_is_on_stdout(run: Any) -> None:
    assert run("model-server", "--help").stdout.startswith("Usage: parley model-server")


def test_our_own_engine_asks_it_through_every_api(tmp_path: Path, environment: dict[str, str], run: Any) -> None:
    with served(tmp_path, environment) as url:
        said = [
            run("-p", "--model", model, f"say Hi from {model}", ANTHROPIC_BASE_URL=url, OPENAI_BASE_URL=f"{url}/v1")
            for model in ("sonnet", "openai:m", "openai-responses:m")
        ]

    assert [done.stdout for done in said] == [
        "Hi from sonnet\n",
        "Hi from openai:m\n",
        "Hi from openai-responses:m\n",
    ]


def test_a_stream_that_breaks_in_its_reasoning_ends_the_turn_and_not_the_session(
    tmp_path: Path, environment: dict[str, str], run: Any
) -> None:
    broken = "[[turn]]\nthinking = 'Hm, hm.'\ntext = 'Never.'\nchunk_chars = 2\nfault = 'reset=4'\n"
    (tmp_path / "script.toml").write_text(f"{broken}[[turn]]\ntext = 'Here.'\n")
    lines = "".join(
        json.dumps({"type": "user", "message": {"role": "user", "content": prompt}}) + "\n" for prompt in ("one", "two")
    )
    with served(tmp_path, environment, "--script", "script.toml") as url:
        done = run(
            *("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"),
            *("--model", "openai-responses:m"),
            stdin=lines,
            OPENAI_BASE_URL=f"{url}/v1",
            CLAUDE_CODE_MAX_RETRIES="0",
        )
    results = [line for line in map(json.loads, done.stdout.splitlines()) if line["type"] == "result"]

    assert [line["is_error"] for line in results] == [True, False]
    assert "the stream broke off inside a reasoning item" in results[0]["result"]
    assert results[1]["result"] == "Here."
