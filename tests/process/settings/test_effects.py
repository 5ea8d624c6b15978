"""Settings that change what a session does."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from parley.errors import ModelError
from parley.settings.credentials import cloud_options
from tests.helpers.policies import HELLO, Machine, calls, control
from tests.helpers.session import SessionHarness

PATH = {"PATH": "/usr/bin:/bin"}


@pytest.mark.parametrize(("chars", "kept"), [(5_000, 5_000), (10, 4_000), (60_000, 60_000)])
def test_longer_output_of_commands_is_saved_to_a_file(machine: Machine, chars: int, kept: int) -> None:
    def printing(count: int) -> tuple[str, dict[str, str]]:
        return "Bash", {"command": f"head -c {count} /dev/zero | tr '\\0' x", "description": "d"}

    done = machine.run(
        "--dangerously-skip-permissions",
        user={"bashOutputMaxChars": chars},
        script=calls(printing(kept), printing(kept + 1_000)),
        BASH_MAX_OUTPUT_LENGTH="99",
    )

    (_, whole), (_, preview) = done.outputs
    assert whole == "x" * kept
    assert len(preview) < kept
    assert "tool-results" in preview


def test_checkpoints_follow_the_settings(machine: Machine) -> None:
    rewind = control("rewind_files", user_message_id="00000000-0000-4000-8000-000000000001", dry_run=True)

    def refusal(enabled: bool, **environment: Any) -> str:
        done = machine.run(user={"fileCheckpointingEnabled": enabled}, send=(rewind,), **environment)
        return str(done.of("control_response")[0]["response"])

    refused = machine.run(send=(rewind,)).of("control_response")[0]["response"]
    assert refusal(False) == str(refused)
    assert refusal(True) != str(refused)


def test_plans_are_written_to_the_folder_of_the_settings(machine: Machine) -> None:
    plan = machine.work / "plans" / "11111111-1111-4111-8111-111111111111.md"
    script = calls(("Write", {"file_path": str(plan), "content": "The plan."}))

    done = machine.run(
        *("--permission-mode", "plan", "--session-id", plan.stem), user={"plansDirectory": "plans"}, script=script
    )

    assert done.outputs[0][0] is False
    assert plan.read_text() == "The plan."


def test_a_project_cannot_put_plans_elsewhere(machine: Machine) -> None:
    machine.write(".claude/settings.json", {"plansDirectory": "../outside"})
    plan = machine.folder / "outside" / "11111111-1111-4111-8111-111111111111.md"
    script = calls(("Write", {"file_path": str(plan), "content": "The plan."}))

    done = machine.run(
        *("--permission-mode", "plan", "--session-id", plan.stem, "--setting-sources", "user,project"), script=script
    )

    assert done.outputs[0][0]
    assert not plan.exists()
    assert "plansDirectory must be inside the project" in done.stderr


def test_file_suggestions_can_include_ignored_files(machine: Machine) -> None:
    subprocess.run(["git", "init", "-q"], cwd=machine.work, check=True)
    machine.write(".gitignore", "built.txt\n")
    machine.write("built.txt", "")
    asked = control("file_suggestions", query="built")

    def found(respects: bool) -> list[str]:
        done = machine.run(user={"respectGitignore": respects}, send=(asked,))
        return [row["path"] for row in done.of("control_response")[0]["response"]["response"]["suggestions"]]

    assert found(True) == []
    assert [path.rpartition("/")[2] for path in found(False)] == ["built.txt"]


@pytest.mark.parametrize("enabled", [True, False])
def test_prompt_suggestions_can_be_switched_off(tmp_path: Path, enabled: bool) -> None:
    settings = json.dumps({"promptSuggestionEnabled": enabled})

    config = SessionHarness(tmp_path, HELLO, prompt_suggestions=True, settings=settings).composed()

    assert config.options.prompt_suggestions is enabled
    config.storage.log.close()


def test_auto_memory_can_be_switched_off(machine: Machine) -> None:
    def tools(**user: object) -> list[str]:
        return list(machine.run(user={"memory": {"enabled": True}, **user}).init["tools"])

    with_memory = tools()
    assert set(tools(autoMemoryEnabled=False)) < set(with_memory)


def test_a_helper_exports_credentials_for_bedrock() -> None:
    printed = '{"Credentials": {"AccessKeyId": "a", "SecretAccessKey": "s", "SessionToken": "t"}}'

    options = cloud_options("bedrock", {**PATH, "AWS_REGION": "r"}, {"awsCredentialExport": f"echo '{printed}'"})

    assert options == {"aws_region": "r", "aws_access_key": "a", "aws_secret_key": "s", "aws_session_token": "t"}


@pytest.mark.parametrize("command", ["echo no-json-secret", "echo '{}'", "exit 3"])
def test_a_helper_that_prints_no_credentials_is_named_without_its_output(command: str) -> None:
    with pytest.raises(ModelError, match="awsCredentialExport") as raised:
        cloud_options("bedrock", PATH, {"awsCredentialExport": command})

    assert "secret" not in str(raised.value).replace("SecretAccessKey", "")
