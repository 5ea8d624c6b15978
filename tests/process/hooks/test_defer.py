"""Deferred calls and new handler kinds through the executable."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.environment import base_environment
from tests.helpers.forked import run_parley

DECIDE = """
cat >> asked
if [ -e approved ]; then word=allow; else word=defer; fi
echo '{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "'$word'"}}'
"""
CALL = 'call Bash {"command": "touch made", "description": "d"}\nshow'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "decide.sh").write_text(DECIDE)
    return tmp_path


def run(folder: Path, *argv: str, stdin: str = "", hook: str = "bash decide.sh") -> subprocess.CompletedProcess[str]:
    settings = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": hook}]}]}}
    return run_parley(
        ["--print", "--model", "offline", "--settings", json.dumps(settings), *argv],
        stdin=stdin,
        cwd=folder,
        env={"HOME": str(folder / "home"), **base_environment()},
    )


def deferred(folder: Path, *options: str) -> dict[str, Any]:
    done = run(folder, "--output-format", "json", *options, stdin=CALL)
    assert (done.returncode, done.stderr) == (0, "")
    result: dict[str, Any] = json.loads(done.stdout)
    assert (result["stop_reason"], result["terminal_reason"]) == ("tool_deferred", "tool_deferred")
    return result


@pytest.mark.parametrize("stream", [(), ("--output-format", "stream-json", "--verbose")])
def test_a_resumed_session_without_a_prompt_continues_with_the_deferred_call(folder: Path, stream: Any) -> None:
    first = deferred(folder)
    assert first["deferred_tool_use"]["input"] == {"command": "touch made", "description": "d"}
    (folder / "approved").touch()

    done = run(folder, *stream, "--resume", first["session_id"])

    assert (done.returncode, (folder / "made").exists()) == (0, True)
    asked = [json.loads(line) for line in (folder / "asked").read_text().splitlines()]
    assert [input["tool_use_id"] for input in asked] == [first["deferred_tool_use"]["id"]] * 2


def test_a_deferred_call_can_be_deferred_again_and_continued_by_continue(folder: Path) -> None:
    first = deferred(folder)
    again = json.loads(run(folder, "--output-format", "json", "--resume", first["session_id"]).stdout)
    (folder / "approved").touch()
    done = run(folder, "--continue")

    assert again["deferred_tool_use"] == first["deferred_tool_use"]
    assert (done.returncode, (folder / "made").exists()) == (0, True)


def test_a_session_without_a_deferred_call_needs_a_prompt(folder: Path) -> None:
    session = json.loads(run(folder, "--output-format", "json", "say hi").stdout)["session_id"]
    done = run(folder, "--resume", session)

    assert done.returncode == 1
    assert done.stderr.startswith("Error: Input must be provided either through stdin or as a prompt argument")
    assert "no deferred tool call" in done.stderr


def test_a_url_that_is_down_denies_the_call_and_says_so(folder: Path) -> None:
    settings = {"hooks": {"PreToolUse": [{"hooks": [{"type": "http", "url": "http://127.0.0.1:9/check"}]}]}}
    done = run(folder, "--settings", json.dumps(settings), "--allowedTools=Bash(touch *)", stdin=CALL)

    assert (folder / "made").exists() is False
    assert "hook PreToolUse:Bash (http 'http://127.0.0.1:9/check' of" in done.stderr
    assert "is not public" in done.stderr
