"""Resumed sessions through the real executable."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from parley.models.script import Script, ScriptedTurn
from parley.testing.model_server import ModelServer, running
from tests.process.cli.conftest import PARLEY

OLD = "11111111-1111-4111-8111-111111111111"
NOBODY = "99999999-9999-4999-8999-999999999999"
JSON = ("-p", "--output-format", "json")
Go = Callable[..., Any]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with running(Script(turn=[ScriptedTurn(text="Yes.")], at_end="repeat")) as found:
        yield found


@pytest.fixture
def go(run: Any, server: ModelServer) -> Go:
    """Run one prompt; returns the result message."""

    def start(*argv: str) -> Any:
        done = run(*JSON, *argv, ANTHROPIC_BASE_URL=server.url, ANTHROPIC_API_KEY="a-key-for-tests")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    return start


def heard(server: ModelServer) -> list[str]:
    """The texts of the last request, in order."""
    return [
        block["text"]
        for message in server.exchanges[-1].body["messages"]
        for block in message["content"]
        if block["type"] == "text"
    ]


def transcript(tmp_path: Path, session_id: str = OLD) -> Path:
    [path] = (tmp_path / "home").rglob(f"{session_id}.jsonl")
    return path


def said(tmp_path: Path) -> list[Any]:
    lines = [json.loads(line) for line in transcript(tmp_path).read_text().splitlines()]
    return [line for line in lines if line["type"] in ("user", "assistant")]


@pytest.fixture
def scenario(go: Go, tmp_path: Path) -> list[str]:
    """Run a session of two turns; returns the ids of its messages."""
    go("--session-id", OLD, "one")
    go("--resume", OLD, "two")
    return [line["uuid"] for line in said(tmp_path)]


def test_a_session_is_resumed_from_any_directory(
    scenario: list[str], run: Any, server: ModelServer, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = {"HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin", "ANTHROPIC_API_KEY": "a-key-for-tests"}
    subprocess.run(
        [PARLEY, "-p", "--resume", OLD, "three"],
        cwd=elsewhere,
        env={**environment, "ANTHROPIC_BASE_URL": server.url},
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )

    assert heard(server) == ["one", "Yes.", "two", "Yes.", "three"]
    assert len(said(tmp_path)) == 6


def test_a_session_continues_at_an_earlier_line_and_stays_there(
    scenario: list[str], go: Go, server: ModelServer, tmp_path: Path
) -> None:
    result = go("--resume", OLD, f"--resume-session-at={scenario[1]}", "other")
    assert (result["session_id"], heard(server)) == (OLD, ["one", "Yes.", "other"])

    go("--resume", OLD, "and on")
    assert heard(server) == ["one", "Yes.", "other", "Yes.", "and on"]
    assert said(tmp_path)[4]["parentUuid"] == scenario[1]


def test_a_fork_at_a_line_leaves_the_session_alone(
    scenario: list[str], go: Go, server: ModelServer, tmp_path: Path
) -> None:
    before = transcript(tmp_path).read_bytes()
    at = ("--resume-session-at", scenario[1], "--resume-drops-turn", scenario[2])
    result = go("--resume", OLD, "--fork-session", *at, "other")

    assert heard(server) == ["one", "Yes.", "other"]
    assert result["session_id"] != OLD
    assert transcript(tmp_path).read_bytes() == before


def test_an_unknown_line_and_a_turn_that_is_not_all_are_errors(
    scenario: list[str], go: Go, server: ModelServer, tmp_path: Path
) -> None:
    before = transcript(tmp_path).read_bytes()
    for argv, warning in (
        (["--resume-session-at", NOBODY], f"No message found with message.uuid of: {NOBODY}"),
        (
            ["--resume-session-at", scenario[0], "--resume-drops-turn", scenario[2]],
            "Resume rejected by --resume-drops-turn:",
        ),
    ):
        result = go("--resume", OLD, *argv, "other")
        assert (result["subtype"], result["session_id"]) == ("error_during_execution", OLD)
        assert result["errors"][0].startswith(warning)

    assert len(server.exchanges) == 2
    assert transcript(tmp_path).read_bytes() == before


def test_nothing_is_written_without_persistence_and_the_old_session_is_read(
    scenario: list[str], go: Go, server: ModelServer, tmp_path: Path
) -> None:
    before = {path: path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file()}
    result = go("--resume", OLD, "--no-session-persistence", "three")

    assert (result["session_id"], heard(server)[-2:]) == (OLD, ["Yes.", "three"])
    assert {path: path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("argv", [("-p", "--model", "offline", "Go on.", "--resume"), ("-r",)])
def test_resume_without_a_value_lists_the_sessions_of_the_directory(
    scenario: list[str], run: Any, tmp_path: Path, argv: tuple[str, ...]
) -> None:
    done = run(*argv)
    first, header, row, last = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "")
    assert first == f"Error: --resume needs a session id or title. The latest sessions of {tmp_path}:"
    assert (header.split(), row.split()[0]) == (["ID", "MODIFIED", "SIZE", "TITLE"], OLD)
    assert last.startswith("To continue one of them: parley --resume ID")


def test_resume_without_a_value_says_that_the_directory_has_no_sessions(run: Any, tmp_path: Path) -> None:
    done = run("-p", "Go on.", "--resume")
    assert (done.returncode, f"no sessions of {tmp_path}" in done.stderr) == (1, True)


def wait_for_result(lines: IO[bytes]) -> Any:
    return next(line for line in map(json.loads, lines) if line["type"] == "result")


def test_a_resumed_session_without_a_prompt_goes_to_the_next_engine_of_the_same_client(
    scenario: list[str], server: ModelServer, environment: dict[str, str], tmp_path: Path
) -> None:
    """claude-code-acp resumes a session, then loads it with a second engine: both are children of one process."""
    stream = ("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
    with subprocess.Popen(
        [PARLEY, *stream, "--model", "offline", "--resume", OLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env=environment,
    ) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        first.stdin.write(b'{"type":"control_request","request_id":"1","request":{"subtype":"initialize"}}\n')
        first.stdin.flush()
        first.stdout.readline()

        own = {**environment, "ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "a-key-for-tests"}
        argv = [PARLEY, *JSON, "--resume", OLD, "Go on."]
        done = subprocess.run(argv, cwd=tmp_path, env=own, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
        second = json.loads(done.stdout)
        first.stdin.write(b'{"type":"user","message":{"role":"user","content":"say Lost."}}\n')
        first.stdin.flush()
        refused = wait_for_result(first.stdout)
        first.stdin.close()

    assert (second["result"], second["session_id"]) == ("Yes.", OLD)
    assert refused["subtype"] == "error_during_execution"
    assert f"Session {OLD} is in use by" in refused["errors"][0]
    assert "Lost" not in transcript(tmp_path).read_text()


def test_a_busy_session_names_its_holder_and_can_still_be_forked(
    scenario: list[str], go: Go, run: Any, environment: dict[str, str], tmp_path: Path
) -> None:
    stream = ("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
    with subprocess.Popen(
        [PARLEY, *stream, "--model", "offline", "--resume", OLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env=environment,
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.write(b'{"type":"user","message":{"role":"user","content":"say Mine."}}\n')
        holder.stdin.flush()
        wait_for_result(holder.stdout)

        busy = go("--resume", OLD, "three")
        fork = go("--resume", OLD, "--fork-session", "three")
        delete = run("sessions", "delete", OLD)
        holder.stdin.close()

    assert busy["subtype"] == "error_during_execution"
    assert f"in use by process {holder.pid} on " in busy["errors"][0]
    assert (fork["subtype"], fork["session_id"] != OLD) == ("success", True)
    assert (
        delete.returncode,
        "requires exclusive access; try again when that process has exited" in delete.stderr,
    ) == (1, True)
    assert "--steal" not in delete.stderr


def test_half_a_line_that_a_kill_left_is_reported_once(run: Any, tmp_path: Path) -> None:
    """A kill between two pages of one write leaves this state."""
    offline = ("-p", "--model", "offline")
    run(*offline, "--session-id", OLD, "say One")
    path = transcript(tmp_path)
    path.write_bytes(path.read_bytes()[:-40])

    first, second = (run(*offline, "--resume", OLD, f"say {word}") for word in ("Two", "Three"))
    assert (first.stdout, second.stdout) == ("Two\n", "Three\n")
    assert "is incomplete or damaged; skipped" in first.stderr
    assert second.stderr == ""
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_name_is_the_title_of_the_session(go: Go, tmp_path: Path) -> None:
    for name in ("A  talk", "A talk", "Another"):
        go(*(["--resume", OLD] if name != "A  talk" else ["--session-id", OLD]), "--name", name, "one")

    lines = [json.loads(line) for line in transcript(tmp_path).read_text().splitlines()]
    assert [line["customTitle"] for line in lines if line["type"] == "custom-title"] == ["A talk", "Another"]


def test_a_title_names_a_session_and_several_with_it_are_listed(go: Go, server: ModelServer) -> None:
    first = go("--name", "Fix the parser", "one")["session_id"]
    assert go("--resume", "Fix the parser", "two")["session_id"] == first
    assert heard(server) == ["one", "Yes.", "two"]

    second = go("--name", "Fix the parser", "other")["session_id"]
    refused = go("--resume", "Fix the parser", "three")
    assert refused["is_error"]
    assert {first, second} <= set(refused["errors"][0].replace("(", " ").split())
    nobody = go("--resume", "Fix the printer", "three")
    assert nobody["errors"][0].startswith("No conversation found with session ID: Fix the printer (no session has")
    assert f"{second} (Fix the parser)" in nobody["errors"][0]
    untitled = go("Explain   this file.")["session_id"]
    assert go("--resume", "explain this file.", "four")["session_id"] == untitled


def test_when_the_device_is_waited_for_is_a_flag_with_three_values(run: Any) -> None:
    assert run("-p", "--model", "offline", "--fsync", "off", "say Well.").stdout == "Well.\n"
    refused = run("-p", "--model", "offline", "--fsync", "sometimes", "say Well.")
    assert (refused.returncode, "Allowed choices are always, turn, off." in refused.stderr) == (1, True)
