"""Processes that the official TypeScript SDK starts before their session is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.models.script import ScriptedCall, ScriptedTurn
from tests.compat.harness import HELLO, Report, Stage
from tests.compat.install import Client

pytest_plugins = ["tests.compat.clients"]

ASKS = [ScriptedTurn(tools=[ScriptedCall(name="mcp__host__secret", id="t1", input={})]), HELLO]
"""The model calls the tool of the host, then answers."""
OPTIONS = {"allowedTools": ["mcp__host__secret"], "systemPrompt": {"type": "preset", "preset": "claude_code"}}


@pytest.fixture
def stage(typescript_sdk: Client, tmp_path: Path) -> Stage:
    return Stage(typescript_sdk, tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the claimed session."""
    found = tmp_path / "claimed"
    found.mkdir()
    return found


def result(report: Report) -> Any:
    [found] = [message for message in report.messages if message["type"] == "result"]
    return found


def init(report: Report) -> Any:
    [found] = [message for message in report.messages if message.get("subtype") == "init"]
    return found


def test_a_warm_query_answers_its_prompt(stage: Stage) -> None:
    report = stage.run("warm", ASKS, kind="startup", prompt="Hi", options=OPTIONS)

    assert report.of("started") == [True]
    assert result(report)["result"] == "Hello there."
    assert report.of("called") == ["secret"]
    assert report.warnings() == []


def test_a_spare_process_becomes_the_session_of_its_claim(stage: Stage, folder: Path) -> None:
    (folder / ".claude" / "commands").mkdir(parents=True)
    (folder / ".claude" / "commands" / "ship.md").write_text("Ship it.\n")
    (folder / "CLAUDE.md").write_text("Be brief.\n")
    claim = {
        "cwd": str(folder),
        "model": "claude-claimed-model",
        "permissionMode": "acceptEdits",
        "maxThinkingTokens": 2000,
        "settings": {"language": "german", "permissions": {"deny": ["Bash(touch *)"]}},
        "appendSystemPrompt": "Mind the gap.",
        "title": "The claimed one",
        "agents": {"helper": {"description": "Helps", "prompt": "Help."}},
        "additionalDirectories": [str(stage.directory)],
        "env": {"CLAUDE_CODE_HOST_SESSION_ID": "h1"},
    }
    touch = ScriptedTurn(tools=[ScriptedCall(name="Bash", id="t2", input={"command": "touch made"})])
    report = stage.run("warm", [touch, *ASKS], kind="prewarm", prompt="Hi", options=OPTIONS, claim=claim)

    [claimed] = report.of("claimed")
    assert claimed["cwd"] == str(folder)
    started = init(report)
    assert (started["cwd"], started["session_id"]) == (str(folder), claimed["sessionId"])
    assert (started["model"], started["permissionMode"]) == ("claude-claimed-model", "acceptEdits")
    assert result(report)["result"] == "Hello there."
    assert [denial["tool_name"] for denial in result(report)["permission_denials"]] == ["Bash"]
    assert not (folder / "made").exists()
    assert report.of("called") == ["secret"]
    assert report.of("hook") == [["PreToolUse", str(folder)]] * 2
    system = str(report.requests[0]["system"])
    assert "Mind the gap." in system
    assert "Be brief." in str(report.requests[0])

    [described] = report.of("described")
    assert "ship" in [command["name"] for command in described["commands"]]
    assert "helper" in [agent["name"] for agent in described["agents"]]
    assert described["current_permission_mode"] == "acceptEdits"
    assert report.of("exited") == [True]
    assert report.of("raised") == []


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        ({"cwd": "missing"}, "cwd_not_found"),
        ({"env": {"PATH": "/tmp"}}, "env_key_not_claimable"),
        ({"permissionMode": "bypassPermissions"}, "permission_mode_not_claimable"),
        ({"settings": {"permissions": 5}}, "settings_not_applied"),
    ],
)
def test_a_claim_that_cannot_be_honoured_rejects_and_the_prompt_does_not_run(
    stage: Stage, folder: Path, claim: dict[str, Any], reason: str
) -> None:
    wanted = {**claim, "cwd": str(folder / claim.get("cwd", ""))}
    report = stage.run("warm", [HELLO], kind="prewarm", prompt="Hi", claim=wanted)

    [refused] = report.of("refused")
    assert refused.startswith(reason)
    assert report.requests == []
    assert report.of("exited") == [True]
    if "settings" not in claim:  # with settings, the SDK holds the prompt until they are accepted
        assert result(report)["errors"][0].startswith("not_claimed")


def test_a_folder_with_settings_of_the_start_is_left_to_a_cold_start(stage: Stage, folder: Path) -> None:
    (folder / ".claude").mkdir()
    (folder / ".claude" / "settings.json").write_text(json.dumps({"model": "other"}))
    report = stage.run("warm", [HELLO], kind="prewarm", prompt="Hi", claim={"cwd": str(folder)})

    [refused] = report.of("refused")
    assert refused.startswith("project_settings_not_claimable")
    assert report.requests == []


def test_a_spare_process_can_be_discarded(stage: Stage) -> None:
    report = stage.run("warm", [HELLO], kind="prewarm")

    assert report.of("started") == [True]
    [refused] = report.of("refused")
    assert refused.startswith("spare_closed")
    assert report.of("exited") == [True]
    assert report.of("hook") == []
