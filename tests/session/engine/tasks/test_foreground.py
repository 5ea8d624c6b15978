"""Commands that are waited for: told when they take long, sent behind by the host, killed by an interrupt."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.engine.tasks import manager
from tests.helpers.mcp import script, visit
from tests.helpers.session import Json, SessionHarness

UNTIL = "echo early; while ! test -e go.txt; do sleep 0.02; done; echo late"
BASH = ("Bash", {"command": UNTIL, "description": "A long job"})


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command is told as a task as soon as it has started."""
    monkeypatch.setattr(manager, "ANNOUNCE_AFTER_SECONDS", 0)


def tasks(harness: SessionHarness) -> list[Json]:
    return [line for line in harness.messages("system") if line["subtype"].startswith(("task_", "background_tasks"))]


def result_of(harness: SessionHarness) -> Json:
    return next(line for line in harness.messages("user") if "tool_use_result" in line)


async def test_a_command_that_takes_long_is_reported_as_a_task_and_so_is_its_end(tmp_path: Path, at_once: None) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive("system", "task_started")
        (tmp_path / "go.txt").touch()
        await harness.receive("result")

    harness = await visit(tmp_path, script([BASH], "Done."), scenario, skip_permissions=True)
    started, ended = tasks(harness)
    assert (started["is_backgrounded"], started["tool_use_id"], started["task_type"]) == (False, "t1", "local_bash")
    assert (ended["status"], ended["summary"], ended["output_file"]) == ("completed", "A long job", "")
    assert result_of(harness)["message"]["content"][0]["content"] == "early\nlate"


async def test_a_short_command_is_not_reported(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive("result")

    harness = await visit(
        tmp_path, script([("Bash", {"command": "echo hi"})], "Done."), scenario, skip_permissions=True
    )
    assert tasks(harness) == []


async def test_an_interrupt_ends_a_command_that_was_reported(tmp_path: Path, at_once: None) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive("system", "task_started")
        await harness.request("interrupt")
        await harness.receive("result")

    harness = await visit(tmp_path, script([BASH]), scenario, skip_permissions=True)
    assert [line.get("status") for line in tasks(harness)] == [None, "stopped"]


@pytest.mark.parametrize("is_told", [True, False])
async def test_the_host_sends_a_command_to_the_background(
    tmp_path: Path, is_told: bool, request: pytest.FixtureRequest
) -> None:
    if is_told:
        request.getfixturevalue("at_once")

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive("system", "task_started") if is_told else await harness.receive("assistant")
        while not harness.session.tasks.move_to_background("t1"):
            await harness.request("get_session_cost")  # a turn of the loop: the command is about to start
        first = await harness.receive("result")
        (tmp_path / "go.txt").touch()
        second = await harness.receive("result")
        assert [first["result"], second["result"]] == ["Sent.", "Done."]
        assert second["origin"]["kind"] == "task-notification"

    harness = await visit(tmp_path, script([BASH], "Sent.", "Done."), scenario, skip_permissions=True)
    detail = result_of(harness)["tool_use_result"]
    assert detail["backgroundedByUser"] is True
    notice = next(line for line in tasks(harness) if line["subtype"] == "task_notification")
    assert (notice["task_id"], notice["status"]) == (detail["backgroundTaskId"], "completed")
    assert Path(notice["output_file"]).read_text() == "early\nlate\n"
    began = [line for line in tasks(harness) if line["subtype"] == "task_started"]
    assert [line["is_backgrounded"] for line in began] == [not is_told]


async def test_what_was_written_before_the_move_is_kept_however_much(tmp_path: Path, at_once: None) -> None:
    command = "head -c 100000 /dev/zero | tr '\\0' x; " + UNTIL

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive("system", "task_started")
        await harness.request("background_tasks", tool_use_id="other")
        await harness.request("background_tasks", tool_use_id="t1")
        await harness.receive("result")
        (tmp_path / "go.txt").touch()
        await harness.receive("result")

    harness = await visit(
        tmp_path, script([("Bash", {"command": command})], "Sent.", "Done."), scenario, skip_permissions=True
    )
    notice = next(line for line in tasks(harness) if line["subtype"] == "task_notification")
    text = Path(notice["output_file"]).read_text()
    assert (len(text), text[-11:]) == (100_011, "early\nlate\n")


async def test_where_nothing_may_run_in_the_background_everything_is_waited_for(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        assert (await harness.receive("result"))["result"] == "Done."

    agent = ("Agent", {"description": "d", "prompt": "work", "run_in_background": True})
    calls = script([("Bash", {"command": "echo hi", "run_in_background": True})], [agent], "Report.", "Done.")
    closed = {"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1"}
    harness = await visit(tmp_path, calls, scenario, closed, skip_permissions=True)
    bash, report = [line["tool_use_result"] for line in harness.messages("user") if "tool_use_result" in line]
    assert (bash["stdout"], report["status"]) == ("hi", "completed")
