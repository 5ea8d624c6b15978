"""Command hooks through the executable: they fail closed, and the model cannot replace their scripts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

DENY = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny"}}

OTHER = {"hookSpecificOutput": {"hookEventName": "PostToolUse", "permissionDecision": "allow"}}


def script(path: Path, *commands: str) -> str:
    turns = "".join(f"[[turn]]\ntools = [{{ name = 'Bash', input = {{ command = '{one}' }} }}]\n" for one in commands)
    path.write_text(f"{turns}[[turn]]\ntext = 'Done.'\n")
    return f"scripted:{path}"


def guarded(tmp_path: Path, run: Any, handler: Any, *commands: str, **environment: str) -> tuple[list[str], str]:
    """Run a session in which a hook guards Bash calls; returns the texts of all tool results and stderr."""
    settings = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [handler]}]}}
    done = run(
        *("--print", "--output-format", "stream-json", "--verbose", "--permission-mode", "bypassPermissions"),
        *("--model", script(tmp_path / "script.toml", *commands), "--settings", json.dumps(settings), "go"),
        IS_SANDBOX="1",
        **environment,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    blocks = [line["message"]["content"] for line in lines if line["type"] == "user"]
    return [str(block["content"]) for content in blocks for block in content], done.stderr


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("words", [{"command": "./guard.sh"}, {"command": "./guard.sh", "args": ["-x"]}])
def test_a_guard_by_relative_path_does_not_follow_a_cd(tmp_path: Path, run: Any, words: Any) -> None:
    executable(tmp_path / "guard.sh", "cat > told; grep -q touch told && { echo no >&2; exit 2; }; exit 0")
    executable(tmp_path / "sub" / "guard.sh", "exit 0")

    texts, _ = guarded(tmp_path, run, {"type": "command", **words}, "cd sub", "touch ran")

    assert "PreToolUse:Bash hook error: no" in texts[-1]
    assert not (tmp_path / "sub" / "ran").exists()
    assert json.loads((tmp_path / "told").read_text())["cwd"] == str(tmp_path / "sub")


def test_a_guard_is_not_found_through_a_relative_entry_of_the_path(tmp_path: Path, run: Any) -> None:
    executable(tmp_path / "right" / "guard", "echo no >&2; exit 2")
    executable(tmp_path / "bin" / "guard", "exit 0")

    path = f"bin:{tmp_path / 'right'}:{os.environ['PATH']}"
    texts, _ = guarded(tmp_path, run, {"type": "command", "command": "guard"}, "touch ran", PATH=path)

    assert texts == ["PreToolUse:Bash hook error: no"]


FAILING: dict[str, dict[str, Any]] = {
    "exit 1": {"type": "command", "command": "exit 1"},
    "not found": {"type": "command", "command": "/no/such/guard"},
    "killed": {"type": "command", "command": "kill -9 $$"},
    "too late": {"type": "command", "command": "exec sleep 600", "timeout": 0.2},
    "broken JSON": {"type": "command", "command": 'echo \'{"decision": "block"\''},
    "misspelt": {"type": "command", "command": 'echo \'{"permisionDecision": "deny"}\''},
    "wrong place": {"type": "command", "command": 'echo \'{"permissionDecision": "deny"}\''},
    "other event": {"type": "command", "command": f"echo '{json.dumps(OTHER)}'"},
    "after a log line": {"type": "command", "command": f"echo checking; echo '{json.dumps(DENY)}'"},
    "unknown kind": {"type": "http", "url": "http://127.0.0.1:9/"},
}


@pytest.mark.parametrize("name", FAILING)
@pytest.mark.parametrize("policy", [None, "continue"])
def test_a_guard_that_gives_no_readable_answer_blocks_the_call_and_says_why(
    tmp_path: Path, run: Any, name: str, policy: str | None
) -> None:
    handler = FAILING[name] if policy is None else {**FAILING[name], "onFailure": policy}

    (text,), stderr = guarded(tmp_path, run, handler, "touch ran")

    assert (tmp_path / "ran").exists() is (policy == "continue")
    if policy is None:
        assert text.startswith("PreToolUse:Bash hook error: the hook (")
        assert "the call is denied" in stderr


@pytest.mark.parametrize("command", ["true", "echo fine", "echo '{}'", "echo '{\"continue\": true}'"])
def test_a_guard_without_an_opinion_lets_the_call_run(tmp_path: Path, run: Any, command: str) -> None:
    guarded(tmp_path, run, {"type": "command", "command": command}, "touch ran")

    assert (tmp_path / "ran").exists()
