"""The real executable after its client disconnected, or without a client that answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import paths
from tests.helpers.patience import PATIENCE_SECONDS
from tests.stress.workspace import host_death, surviving_processes

PARLEY = str(Path(sys.executable).with_name("parley"))
GREETER = paths.MCP_SERVERS / "greeter.py"
ONE_SHOT = ("-p", "--verbose", "--output-format", "stream-json", "--model", "offline")


def test_a_host_that_is_killed_leaves_nothing_behind_and_its_session_resumes() -> None:
    """Several at a time, because they wait much; how soon it happens is not asked of a busy machine."""
    seen = host_death.run_all([*host_death.STATES], runs=1, jobs=4, within_seconds=PATIENCE_SECONDS)

    assert [one.state for one in seen] == [*host_death.STATES]
    assert [problem for one in seen for problem in one.problems] == []


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_reader_that_leaves_before_the_answer_ends_the_run(
    tmp_path: Path, environment: dict[str, str], form: str
) -> None:
    argv = [PARLEY, "-p", "--output-format", form, "--model", "offline", "--allowedTools", "Bash"]
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    call = {"command": "echo began > ready; sleep 600; echo late >> ran"}
    engine = subprocess.Popen(
        [*argv, "--", f"call Bash {json.dumps(call)}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env=environment,
    )
    try:
        assert engine.stdout is not None
        assert ready.read_text() == "began\n"
        engine.stdout.close()
        assert engine.wait(PATIENCE_SECONDS) == 1
    finally:
        engine.kill()
    [transcript] = (tmp_path / "home").glob(".claude/projects/*/*.jsonl")
    last = json.loads(transcript.read_text().splitlines()[-1])
    assert last["entry"]["terminal_reason"] == "aborted_tools"
    assert not (tmp_path / "ran").exists()


def test_a_run_whose_output_has_no_reader_from_the_start_asks_no_model(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    argv = [PARLEY, *ONE_SHOT, "--allowedTools", "Bash", "--", 'call Bash {"command": "echo ran > ran"}']
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=writing,
        cwd=tmp_path,
        env=environment,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    os.close(writing)
    assert done.returncode == 1
    assert not (tmp_path / "ran").exists()


def test_a_helper_for_the_key_ends_with_the_run(tmp_path: Path, environment: dict[str, str]) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    settings = {"apiKeyHelper": f"sleep 600 & echo $$ $! > {ready}; wait"}
    engine = subprocess.Popen(
        [PARLEY, "-p", "--settings", json.dumps(settings), "hello"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env=environment,
    )
    try:
        assert engine.stdout is not None
        helpers = [int(pid) for pid in ready.read_text().split()]
        engine.stdout.close()
        assert engine.wait(PATIENCE_SECONDS) == 1
    finally:
        engine.kill()
    assert [pid for pid in helpers if (stat := surviving_processes.stat_of(pid)) is not None and stat[0] != b"Z"] == []


def test_a_mere_end_of_input_ends_nothing(tmp_path: Path, environment: dict[str, str]) -> None:
    prompt = {"type": "user", "message": {"role": "user", "content": "wait 0.3\nsay done"}}
    done = subprocess.run(
        [PARLEY, *ONE_SHOT, "--input-format", "stream-json"],
        input=json.dumps(prompt).encode() + b"\n",
        capture_output=True,
        cwd=tmp_path,
        env=environment,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1])["result"] == "done"


def one_shot(run: Any, *argv: str) -> list[dict[str, Any]]:
    """The output of a one-shot run without a client on stdin; a run that waits for an answer fails by its timeout."""
    done = run(*ONE_SHOT, *argv)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line for line in told if line["type"] == "control_request"] == []
    assert told[-1]["type"] == "result"
    return told


def results(told: list[dict[str, Any]]) -> list[str]:
    blocks = [block for line in told if line["type"] == "user" for block in line["message"]["content"]]
    return [json.dumps(block["content"]) for block in blocks if block["type"] == "tool_result"]


def test_a_question_that_no_one_can_answer_is_denied_at_once(run: Any, tmp_path: Path) -> None:
    argv = ("--permission-prompt-tool", "stdio", 'call Bash {"command": "touch made"}\nshow')
    [result] = results(one_shot(run, *argv))
    assert "Permission could not be requested" in result
    assert not (tmp_path / "made").exists()


def test_an_elicitation_that_no_one_can_answer_is_cancelled_at_once(run: Any) -> None:
    server = {"command": sys.executable, "args": [str(GREETER)], "required": True}
    argv = ("--mcp-config", json.dumps({"mcpServers": {"workshop": server}}), "--allowedTools", "mcp__workshop")
    [result] = results(one_shot(run, *argv, "--", "call mcp__workshop__greet {}"))
    assert "(cancel)" in result


def test_a_server_of_a_host_that_cannot_answer_is_not_waited_for(run: Any) -> None:
    servers = json.dumps({"mcpServers": {"mine": {"type": "sdk", "name": "mine"}}})
    told = one_shot(run, "--mcp-config", servers, "--", "say Hi.")
    assert told[-1]["result"] == "Hi."


@pytest.mark.parametrize("tool", ["AskUserQuestion", "ExitPlanMode"])
def test_a_dialog_that_no_one_can_answer_ends_at_once(run: Any, tool: str) -> None:
    option = {"label": "a", "description": "a"}
    question = {"question": "Which?", "header": "h", "options": [option, {**option, "label": "b"}]}
    given = {"questions": [question]} if tool == "AskUserQuestion" else {"plan": "a plan"}
    mode = ("--permission-mode", "plan") if tool == "ExitPlanMode" else ()
    told = one_shot(run, "--permission-prompt-tool", "stdio", *mode, f"call {tool} {json.dumps(given)}\nsay done")
    assert told[-1]["result"] == "done"
