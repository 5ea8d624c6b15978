"""Tools that change the session itself: monitors, scheduled prompts, worktrees, the list of agents."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from parley.tools.bash import NO_SOCKETS
from tests.helpers.mcp import script
from tests.helpers.session import Json, SessionHarness

STREAM: Json = {"input_format": "stream-json"}
MONITOR = ("Monitor", {"command": "echo one; until [ -e go ]; do sleep 0.01; done; echo two", "description": "W"})
CRON = ("CronCreate", {"cron": "*/5 * * * *", "prompt": "look again"})
WAKEUP = ("ScheduleWakeup", {"delaySeconds": 90, "reason": "r", "prompt": "wake", "noop": True})


class HandClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self._moved = asyncio.Event()

    def seconds(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            await self._moved.wait()

    def move(self, seconds: float) -> None:
        self.now += seconds
        self._moved.set()
        self._moved = asyncio.Event()


def at_hand_clock(folder: Path, turns: str, clock: HandClock, **options: Any) -> SessionHarness:
    harness = SessionHarness(folder, turns, **options)
    harness.stamp = msgspec.structs.replace(harness.stamp, seconds=clock.seconds, sleep=clock.sleep)
    return harness


def text_of(harness: SessionHarness, call: str) -> str:
    for line in harness.messages("user"):
        block = line["message"]["content"][0]
        if block.get("tool_use_id") == call:
            return str(block["content"])
    raise AssertionError(f"no result of {call}")


def detail_of(harness: SessionHarness, call: str) -> Json:
    return next(
        line["tool_use_result"]
        for line in harness.messages("user")
        if line["message"]["content"][0].get("tool_use_id") == call
    )


def decisions_of(harness: SessionHarness) -> list[tuple[str, str]]:
    """The recorded decisions: tool and behaviour."""
    entries = harness.session.config.storage.log.entries()
    return [(entry.message["tool"], entry.message["decision"]) for entry in entries if entry.kind == "permission"]


def prompts_of(harness: SessionHarness) -> list[str]:
    rendered = harness.session.journal.history.render()
    return [str(block.get("text")) for message in rendered if message["role"] == "user" for block in message["content"]]


async def test_each_line_of_a_monitored_command_becomes_a_turn(tmp_path: Path) -> None:
    turns = script([MONITOR], "Watching.", "Saw one.", "Saw two.", "It ended.")
    async with SessionHarness(tmp_path, turns, allowed_tools=("Bash",), **STREAM) as harness:
        harness.prompt("Go")
        await harness.receive("result")
        first = await harness.receive("result")
        (tmp_path / "go").touch()
        await harness.receive("result")
        await harness.receive("result")
        said = prompts_of(harness)
    assert first["origin"]["kind"] == "task-notification"
    assert detail_of(harness, "t1")["timeoutMs"] == 300_000
    assert any("reports:\none\n" in text for text in said)
    assert any("reports:\ntwo\n" in text for text in said)
    assert any("The monitor" in text and "completed (exit code 0)" in text for text in said)


async def test_a_rule_against_commands_holds_for_monitors(tmp_path: Path) -> None:
    turns = script([MONITOR], "Done.")
    rules = '{"permissions":{"deny":["Bash(echo *)"]}}'
    async with SessionHarness(tmp_path, turns, tools=("Monitor",), settings=rules) as harness:
        harness.prompt("Go")
        result = await harness.receive("result")
    assert [denial["tool_name"] for denial in result["permission_denials"]] == ["Monitor"]


async def test_a_monitored_socket_is_refused(tmp_path: Path) -> None:
    turns = (
        '[[turn]]\ntools = [{ name = "Monitor", id = "t1", input = { description = "d", ws = { url = "ws://x" } } }]\n'
    )
    async with SessionHarness(tmp_path, turns + script("Done."), **STREAM) as harness:
        harness.prompt("Go")
        await harness.receive("result")
    assert NO_SOCKETS in text_of(harness, "t1")


async def test_a_monitor_whose_command_dies_is_reported_with_what_it_wrote(tmp_path: Path) -> None:
    call = ("Monitor", {"command": "printf 'no newline'; exit 3", "description": "Dies"})
    turns = script([call], "Watching.", "Saw.", "Noted.")
    async with SessionHarness(tmp_path, turns, allowed_tools=("Monitor",), **STREAM) as harness:
        harness.prompt("Go")
        for _ in range(3):
            await harness.receive("result")
        said = prompts_of(harness)
    assert any("reports:\nno newline\n" in text for text in said)
    assert any("The monitor" in text and "failed with exit code 3" in text for text in said)
    told = {line["subtype"]: line for line in harness.messages("system") if "task" in line["subtype"]}
    assert told["task_started"]["ambient"] is True
    assert (told["task_notification"]["ambient"], told["task_notification"]["status"]) == (True, "failed")
    assert told["task_updated"]["patch"]["error"] == "failed with exit code 3"
    [live] = next(line for line in harness.messages("system") if line["subtype"] == "background_tasks_changed")["tasks"]
    assert live["ambient"] is True


async def test_a_monitor_needs_a_command_and_is_stopped_like_a_task(tmp_path: Path) -> None:
    watch = ("Monitor", {"command": "sleep 600", "description": "W", "timeout_ms": 9_999_999})
    turns = script([("Monitor", {"command": " ", "description": "W"})], [watch], "Watching.")
    async with SessionHarness(tmp_path, turns, skip_permissions=True, **STREAM) as harness:
        harness.prompt("Go")
        await harness.receive("result")
        task = detail_of(harness, "t2")
        harness.send(
            {
                "type": "control_request",
                "request_id": "stop",
                "request": {"subtype": "stop_task", "task_id": task["taskId"]},
            }
        )
        ended = await harness.receive("system", "task_notification")
    assert "`command` is missing" in text_of(harness, "t1")
    assert task["timeoutMs"] == 1_800_000
    assert ended["status"] == "stopped"


async def test_a_monitor_that_nobody_allows_does_not_run(tmp_path: Path) -> None:
    call = ("Monitor", {"command": "touch made", "description": "W"})
    async with SessionHarness(tmp_path, script([call], "Done."), **STREAM) as harness:
        harness.prompt("Go")
        result = await harness.receive("result")
        decisions = decisions_of(harness)
    assert [denial["tool_name"] for denial in result["permission_denials"]] == ["Monitor"]
    assert decisions == [("Monitor", "deny")]
    assert not (tmp_path / "made").exists()


async def test_a_cron_job_queues_its_prompt_at_each_match(tmp_path: Path) -> None:
    clock = HandClock()
    turns = script([CRON], [("CronList", {})], "Scheduled.", "Looked.", "Looked again.")
    async with at_hand_clock(tmp_path, turns, clock, **STREAM) as harness:
        harness.prompt("Go")
        await harness.receive("result")
        assert decisions_of(harness) == [("CronCreate", "allow"), ("CronList", "allow")]
        job = detail_of(harness, "t1")
        assert (job["humanSchedule"], job["recurring"], job["durable"]) == ("every 5 minutes", True, False)
        [listed] = detail_of(harness, "t2")["jobs"]
        assert (listed["id"], listed["cron"], listed["prompt"]) == (job["id"], "*/5 * * * *", "look again")
        results = []
        for _ in range(2):
            for _ in range(6):
                clock.move(60)
                await asyncio.sleep(0)
            results.append(await harness.receive("result"))
    assert [result["origin"] for result in results] == [
        {"kind": "task-notification", "subkind": "scheduled-trigger", "fireReason": "scheduled"}
    ] * 2


async def test_a_job_is_removed_and_an_unknown_one_is_named(tmp_path: Path) -> None:
    bad = [("CronCreate", {"cron": "1 2 3", "prompt": "p"}), ("CronCreate", {"cron": "0 0 31 2 *", "prompt": "p"})]
    bad += [("CronCreate", {"cron": "* * * * *", "prompt": " "}), ("CronCreate", {"cron": "61 * * * *", "prompt": "p"})]
    async with SessionHarness(tmp_path, script([("CronDelete", {"id": "nope"}), *bad, CRON], "Done."), **STREAM) as one:
        one.prompt("Go")
        await one.receive("result")
        job, session_id = detail_of(one, "t6")["id"], one.session.id
    assert "no scheduled job 'nope'" in text_of(one, "t1")
    assert "has 3 fields, expected 5" in text_of(one, "t2")
    assert "never matches" in text_of(one, "t3")
    assert "prompt is missing" in text_of(one, "t4")
    assert "The minute '61' of the cron expression is invalid" in text_of(one, "t5")
    turns = script([("CronDelete", {"id": job}), ("CronList", {})], "Gone.")
    async with SessionHarness(tmp_path, turns, resume=session_id, **STREAM) as harness:
        harness.prompt("Go")
        await harness.receive("result")
    assert detail_of(harness, "t1") == {"id": job}
    assert detail_of(harness, "t2") == {"jobs": []}


async def test_a_job_that_fires_once_is_gone_afterwards_and_durable_ones_do_not_exist(tmp_path: Path) -> None:
    clock = HandClock()
    call = ("CronCreate", {"cron": "*/5 * * * *", "prompt": "once", "recurring": False, "durable": True})
    turns = script([call], "Scheduled.", [("CronList", {})], "Looked.")
    async with at_hand_clock(tmp_path, turns, clock, **STREAM) as harness:
        harness.prompt("Go")
        await harness.receive("result")
        for _ in range(6):
            clock.move(60)
            await asyncio.sleep(0)
        await harness.receive("result")
    assert "durable is not supported" in text_of(harness, "t1")
    assert detail_of(harness, "t1")["durable"] is False
    assert detail_of(harness, "t2") == {"jobs": []}


async def test_there_is_a_limit_to_jobs(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, script([CRON] * 51, "Done."), **STREAM) as harness:
        harness.prompt("Go")
        await harness.receive("result")
    assert detail_of(harness, "t50")["recurring"] is True
    assert "There are 50 scheduled prompts, which is the limit" in text_of(harness, "t51")


async def test_a_stop_hook_sees_what_will_wake_the_session(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, script([CRON, WAKEUP], "Done."), **STREAM) as harness:
        await harness.request("initialize", hooks={"Stop": [{"matcher": None, "hookCallbackIds": ["stop"]}]})
        harness.prompt("Go")
        asked = await harness.receive("control_request")
        answer = {"subtype": "success", "request_id": asked["request_id"], "response": {}}
        harness.send({"type": "control_response", "response": answer})
        await harness.receive("result")
    cron, wakeup = asked["request"]["input"]["session_crons"]
    expected = ("*/5 * * * *", True, "look again")
    assert (cron["schedule"], cron["recurring"], cron["prompt"]) == expected
    assert (wakeup["recurring"], wakeup["prompt"], len(wakeup["schedule"].split())) == (False, "wake", 5)


async def test_a_session_without_more_input_has_no_tools_that_wait(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, script([CRON], "Done.")) as harness:
        harness.prompt("Go")
        init = await harness.receive("system", "init")
        await harness.receive("result")
    assert not {"CronCreate", "CronDelete", "CronList", "Monitor", "ScheduleWakeup"} & set(init["tools"])
    assert "No such tool available: CronCreate" in text_of(harness, "t1")


async def test_a_wake_up_continues_after_a_resume(tmp_path: Path) -> None:
    clock = HandClock()
    async with at_hand_clock(tmp_path, script([WAKEUP], "Waiting."), clock, **STREAM) as harness:
        harness.prompt("Go")
        await harness.receive("result")
        assert detail_of(harness, "t1") == {
            "scheduledFor": round((clock.now + 90) * 1000),
            "clampedDelaySeconds": 90,
            "wasClamped": False,
        }
        session_id = harness.session.id
    clock.now += 1000
    async with at_hand_clock(tmp_path, script("Awake."), clock, resume=session_id, **STREAM) as harness:
        result = await harness.receive("result")
        assert any("\nwake\n" in text for text in prompts_of(harness))
    assert result["origin"]["fireReason"] == "catch_up"


async def test_a_pending_wake_up_is_stopped(tmp_path: Path) -> None:
    turns = script([WAKEUP], [("ScheduleWakeup", {"stop": True})], "Done.")
    async with SessionHarness(tmp_path, turns, **STREAM) as harness:
        harness.prompt("Go")
        await harness.receive("result")
        assert harness.session.scheduler.list_jobs() == []
    assert detail_of(harness, "t2")["cancelledWakeups"] == 1


@pytest.mark.parametrize(("asked", "given"), [(5, 60), (86_400, 3600), (-1, 60), (600, 600)])
async def test_the_delay_of_a_wake_up_is_limited(tmp_path: Path, asked: int, given: int) -> None:
    call = ("ScheduleWakeup", {"delaySeconds": asked, "prompt": "p", "reason": "r"})
    async with SessionHarness(tmp_path, script([call], "Done."), **STREAM) as harness:
        harness.prompt("Go")
        await harness.receive("result")
    detail = detail_of(harness, "t1")
    assert (detail["clampedDelaySeconds"], detail["wasClamped"]) == (given, asked != given)


async def test_a_wake_up_needs_a_delay_and_a_prompt_and_replaces_the_last_one(tmp_path: Path) -> None:
    calls: list[tuple[str, Json]] = [
        ("ScheduleWakeup", {"prompt": "p"}),
        ("ScheduleWakeup", {"delaySeconds": 60}),
        ("ScheduleWakeup", {"delaySeconds": "soon", "prompt": "p"}),
        ("ScheduleWakeup", {"stop": True}),
        WAKEUP,
        WAKEUP,
    ]
    async with SessionHarness(tmp_path, script(calls, "Done."), **STREAM) as harness:
        harness.prompt("Go")
        await harness.receive("result")
        [job] = harness.session.scheduler.list_jobs()
    assert "delaySeconds is missing" in text_of(harness, "t1")
    assert "prompt is missing" in text_of(harness, "t2")
    assert "InputValidationError" in text_of(harness, "t3")
    assert detail_of(harness, "t4")["cancelledWakeups"] == 0
    assert job.id in text_of(harness, "t6")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    who = ("-c", "user.name=me", "-c", "user.email=me@example.com", "-c", "commit.gpgsign=false")
    (tmp_path / ".gitignore").write_text("home/\nscript.toml\n*.jsonl\nclaude-*\n")
    for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


async def test_a_session_works_in_a_worktree_and_returns(project: Path) -> None:
    turns = script(
        [("EnterWorktree", {"name": "feat/x"})],
        [("Bash", {"command": "touch new.txt; pwd"})],
        [("ExitWorktree", {"action": "remove"})],
        [("ExitWorktree", {"action": "remove", "discard_changes": True})],
        [("Bash", {"command": "pwd"})],
        "Done.",
    )
    async with SessionHarness(project, turns, skip_permissions=True) as harness:
        harness.prompt("Go")
        await harness.receive("result")
    place = project / ".claude" / "worktrees" / "feat+x"
    assert text_of(harness, "t2").strip() == str(place)
    assert "1 uncommitted files" in text_of(harness, "t3")
    assert detail_of(harness, "t4")["discardedFiles"] == 1
    assert text_of(harness, "t5").strip() == str(project)
    assert not place.exists()


async def test_a_worktree_is_entered_and_left_only_as_it_should_be(project: Path) -> None:
    turns = script(
        [("ExitWorktree", {"action": "keep"})],
        [("EnterWorktree", {"name": "../up"}), ("EnterWorktree", {"name": "x" * 65})],
        [("EnterWorktree", {"name": "a", "path": "b"}), ("EnterWorktree", {"path": str(project)})],
        [("EnterWorktree", {"name": "a"})],
        [("EnterWorktree", {"name": "b"}), ("ExitWorktree", {"action": "keep"})],
        [("EnterWorktree", {"name": "a"}), ("EnterWorktree", {"path": ".claude/worktrees/a"})],
        [("ExitWorktree", {"action": "remove"}), ("ExitWorktree", {"action": "burn"})],
        "Done.",
    )
    async with SessionHarness(project, turns, skip_permissions=True) as harness:
        harness.prompt("Go")
        await harness.receive("result")
    words = {
        "t1": "The session is not in a worktree",
        "t2": "The name '../up' is invalid",
        "t3": "at most 64 characters",
        "t4": "Give either name or path, not both.",
        "t5": "is not a worktree of this repository",
        "t7": "in the worktree",
        "t9": "A worktree or branch named",
        "t11": "was not created by EnterWorktree: leave it with action 'keep'",
        "t12": "InputValidationError",
    }
    for call, text in words.items():
        assert text in text_of(harness, call), call
    assert detail_of(harness, "t8")["action"] == "keep"
    assert detail_of(harness, "t10")["worktreePath"] == str(project / ".claude" / "worktrees" / "a")


async def test_a_worktree_with_work_is_removed_only_if_the_work_may_be_lost(project: Path) -> None:
    commit = "git -c user.name=me -c user.email=me@example.com -c commit.gpgsign=false"
    turns = script(
        [("EnterWorktree", {})],
        [("Bash", {"command": f"echo a > kept.txt; git add .; {commit} commit -qm 'Keep this'; echo b > dirty.txt"})],
        [("ExitWorktree", {"action": "remove"})],
        "Done.",
    )
    async with SessionHarness(project, turns, skip_permissions=True) as harness:
        harness.prompt("Go")
        await harness.receive("result")
        place = Path(detail_of(harness, "t1")["worktreePath"])
    told = text_of(harness, "t3")
    assert "1 uncommitted files and 1 commits" in told
    assert "dirty.txt" in told
    assert "Keep this" in told
    assert (place / "kept.txt").exists()


async def test_a_resumed_session_is_in_its_worktree_again(project: Path) -> None:
    async with SessionHarness(project, script([("EnterWorktree", {"name": "a"})], "In."), skip_permissions=True) as one:
        one.prompt("Go")
        await one.receive("result")
        session_id = one.session.id
    turns = script([("Bash", {"command": "pwd"})], "Done.")
    async with SessionHarness(project, turns, skip_permissions=True, resume=session_id) as harness:
        harness.prompt("Go")
        await harness.receive("result")
    assert text_of(harness, "t1").strip() == str(project / ".claude" / "worktrees" / "a")


@pytest.mark.parametrize("removes", [True, False])
async def test_a_hook_can_make_the_worktree_of_the_session(project: Path, removes: bool) -> None:
    made = project / "home" / "made"
    hook = {"WorktreeCreate": f"mkdir -p {made}; echo {made}", "WorktreeRemove": f"rm -r {made}"}
    commands = {event: hook[event] for event in (hook if removes else ["WorktreeCreate"])}
    rows = {event: [{"hooks": [{"type": "command", "command": text}]}] for event, text in commands.items()}
    turns = script(
        [("EnterWorktree", {"name": "a"})],
        [("Bash", {"command": "pwd"})],
        [("ExitWorktree", {"action": "remove"})],
        "Done.",
    )
    settings = json.dumps({"hooks": rows})
    async with SessionHarness(project, turns, skip_permissions=True, settings=settings) as harness:
        harness.prompt("Go")
        await harness.receive("result")
    assert text_of(harness, "t2").strip() == str(made)
    assert made.exists() is not removes
    assert ("was removed" if removes else "no WorktreeRemove hook") in text_of(harness, "t3")


async def test_a_worktree_needs_permission(project: Path) -> None:
    turns = script([("EnterWorktree", {"name": "a"})], "Done.")
    async with SessionHarness(project, turns) as harness:
        harness.prompt("Go")
        result = await harness.receive("result")
        decisions = decisions_of(harness)
    assert [denial["tool_name"] for denial in result["permission_denials"]] == ["EnterWorktree"]
    assert decisions == [("EnterWorktree", "deny")]
    assert not (project / ".claude").exists()


async def test_outside_of_a_repository_there_is_no_worktree(tmp_path: Path) -> None:
    turns = script([("EnterWorktree", {"name": "a"})], "Done.")
    async with SessionHarness(tmp_path, turns, skip_permissions=True) as harness:
        harness.prompt("Go")
        init = await harness.receive("system", "init")
        await harness.receive("result")
    assert not {"EnterWorktree", "ExitWorktree"} & set(init["tools"])
    assert "No such tool available: EnterWorktree" in text_of(harness, "t1")
    named = ("EnterWorktree", "ExitWorktree")
    async with SessionHarness(tmp_path, turns, skip_permissions=True, tools=named) as harness:
        harness.prompt("Go")
        await harness.receive("result")
    assert "not a git repository" in text_of(harness, "t1")


async def test_running_and_finished_agents_are_listed_with_what_reaches_them(tmp_path: Path) -> None:
    agent = {"description": "Look", "prompt": "SUBTASK", "subagent_type": "Explore", "name": "scout"}
    turns = script([("Agent", agent)])
    turns += "[[turn]]\nwhen = 'SUBTASK'\ntext = 'Found.'\n"
    turns += "[[turn]]\nwhen = 'Found.'\ntools = [{ name = 'ListAgents', id = 'l1' }]\n" + script("Done.")
    async with SessionHarness(tmp_path, turns) as harness:
        harness.prompt("Go")
        await harness.receive("result")
        session_id = harness.session.id
    [listed] = detail_of(harness, "l1")["agents"]
    assert (listed["type"], listed["description"], listed["status"]) == ("Explore", "Look", "completed")
    async with SessionHarness(tmp_path, script([("ListAgents", {})], "Done."), resume=session_id) as harness:
        harness.prompt("Go")
        await harness.receive("result")
    [again] = detail_of(harness, "t1")["agents"]
    assert (again["id"], again["status"]) == (listed["id"], "finished")


async def test_the_agents_of_a_session_are_listed(tmp_path: Path) -> None:
    turns = script([("ListAgents", {})], "Done.")
    async with SessionHarness(tmp_path, turns) as harness:
        harness.prompt("Go")
        await harness.receive("result")
    assert detail_of(harness, "t1") == {"listing": "There are no agents yet.", "agents": []}


async def test_a_brief_session_sends_the_user_messages(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, script([("SendUserMessage", {"message": "Hi"})], "x"), brief=True) as harness:
        harness.prompt("Go")
        init = await harness.receive("system", "init")
        await harness.receive("result")
    assert "SendUserMessage" in init["tools"]
    assert detail_of(harness, "t1") == {"message": "Hi", "status": "normal"}


async def test_without_brief_the_user_reads_the_answers_and_there_is_no_such_tool(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, script([("SendUserMessage", {"message": "Hi"})], "x")) as harness:
        harness.prompt("Go")
        init = await harness.receive("system", "init")
        await harness.receive("result")
    assert "SendUserMessage" not in init["tools"]
    assert "No such tool available: SendUserMessage" in text_of(harness, "t1")


async def test_an_empty_message_for_the_user_is_refused(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, script([("SendUserMessage", {"message": ""})], "x"), brief=True) as harness:
        harness.prompt("Go")
        await harness.receive("result")
    assert "InputValidationError" in text_of(harness, "t1")


async def test_declared_inputs_of_bash_and_read_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text("line\n" * 3000)
    calls = [
        ("Bash", {"command": "echo hi", "dangerouslyDisableSandbox": False}),
        ("Read", {"file_path": str(tmp_path / "big.txt"), "allow_large": True}),
    ]
    async with SessionHarness(tmp_path, script(calls, "Done.")) as harness:
        harness.prompt("Go")
        await harness.receive("result")
    assert text_of(harness, "t1").strip() == "hi"
    assert detail_of(harness, "t2")["file"]["numLines"] == 3001
