"""The tools that change the session itself, through the executable."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.helpers.environment import base_environment
from tests.helpers.forked import run_parley
from tests.helpers.mcp import script
from tests.helpers.session import Json

ARGV = ("--print", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json")
PROMPT = {"type": "user", "message": {"role": "user", "content": "Go"}}


def run(folder: Path, turns: str, *argv: str) -> list[Json]:
    """The lines of a session with one prompt, after which the input ends."""
    (folder / "script.toml").write_text(turns)
    project = folder / "project"
    if not project.exists():
        project.mkdir()
        who = ("-c", "user.name=me", "-c", "user.email=me@example.com", "-c", "commit.gpgsign=false")
        for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "first")):
            subprocess.run(["git", *who, *words], cwd=project, check=True, capture_output=True)
    done = run_parley(
        [*ARGV, "--model", f"scripted:{folder / 'script.toml'}", *argv],
        stdin=json.dumps(PROMPT) + "\n",
        cwd=project,
        env={"HOME": str(folder), **base_environment(), "IS_SANDBOX": "1"},
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def details(lines: list[Json]) -> dict[str, Json]:
    found = [line for line in lines if "tool_use_result" in line]
    return {line["message"]["content"][0]["tool_use_id"]: line["tool_use_result"] for line in found}


def test_every_tool_is_listed_allowed_and_run(tmp_path: Path) -> None:
    turns = script(
        [("CronCreate", {"cron": "0 9 * * *", "prompt": "look"}), ("CronList", {})],
        [("CronDelete", {"id": "nope"}), ("ListAgents", {})],
        [("ScheduleWakeup", {"delaySeconds": 600, "prompt": "wake", "reason": "r", "noop": False})],
        [("EnterWorktree", {"name": "side"}), ("Bash", {"command": "pwd"})],
        [("ExitWorktree", {"action": "remove"}), ("Bash", {"command": "pwd"})],
        [("SendUserMessage", {"message": "Nearly done."})],
        "Done.",
    )
    lines = run(tmp_path, turns, "--brief", "--dangerously-skip-permissions")
    init, result = next(line for line in lines if line.get("subtype") == "init"), lines[-1]
    tools = ("CronCreate", "CronDelete", "CronList", "EnterWorktree", "ExitWorktree", "ListAgents", "Monitor")
    assert {*tools, "ScheduleWakeup", "SendUserMessage"} <= set(init["tools"])
    assert (result["result"], result["permission_denials"]) == ("Done.", [])
    found = details(lines)
    assert [job["id"] for job in found["t2"]["jobs"]] == [found["t1"]["id"]]
    assert "no scheduled job 'nope'" in str(found["t3"])
    assert found["t4"]["agents"] == []
    assert found["t5"]["clampedDelaySeconds"] == 600
    side = str(tmp_path / "project" / ".claude" / "worktrees" / "side")
    assert (found["t6"]["worktreePath"], found["t7"]["stdout"].strip()) == (side, side)
    assert found["t9"]["stdout"].strip() == str(tmp_path / "project")
    assert not os.path.exists(side)
    assert found["t10"]["message"] == "Nearly done."
    # A process whose input has ended does not wait for its jobs; the next one continues with them.
    later = run(tmp_path, script([("CronList", {})], "Done."), "--resume", result["session_id"])
    assert [job["prompt"] for job in details(later)["t1"]["jobs"]] == ["look"]


def test_a_monitor_reports_until_its_command_ends_although_the_input_has_ended(tmp_path: Path) -> None:
    call = ("Monitor", {"command": "echo one; echo two >&2; exit 3", "description": "Watch"})
    turns = script([call], "Watching.", "Seen.", "Ended.")
    lines = run(tmp_path, turns, "--allowedTools", "Monitor")
    results = [line["result"] for line in lines if line["type"] == "result"]
    [ended] = [line for line in lines if line.get("subtype") == "task_notification"]
    assert results == ["Watching.", "Seen.", "Ended."]
    assert (ended["status"], ended["summary"]) == ("failed", 'Monitor "Watch" failed with exit code 3')


def test_agents_are_listed_a_job_is_deleted_and_declared_inputs_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "big.txt").write_text("line\n" * 3000)
    agent = {"description": "Look", "prompt": "SUBTASK", "subagent_type": "Explore"}
    turns = script(
        [("Agent", agent)],
        [("Bash", {"command": "echo hi", "dangerouslyDisableSandbox": True})],
        [("Read", {"file_path": str(tmp_path / "project" / "big.txt"), "allow_large": True})],
        [("CronCreate", {"cron": "0 9 * * *", "prompt": "look"})],
        [("ListAgents", {})],
        "Done.",
    )
    turns += "[[turn]]\nwhen = 'SUBTASK'\ntext = 'Found.'\n"
    lines = run(tmp_path, turns, "--dangerously-skip-permissions")
    found = details(lines)
    assert found["t2"]["stdout"].strip() == "hi"
    assert found["t3"]["file"]["numLines"] == 3001
    [listed] = found["t5"]["agents"]
    assert (listed["type"], listed["description"], listed["status"]) == ("Explore", "Look", "completed")
    turns = script([("CronDelete", {"id": found["t4"]["id"]})], [("CronList", {})], "Done.")
    later = details(run(tmp_path, turns, "--dangerously-skip-permissions", "--resume", lines[-1]["session_id"]))
    assert later["t1"]["id"] == found["t4"]["id"]
    assert later["t2"]["jobs"] == []


def test_unattended_means_no(tmp_path: Path) -> None:
    calls = [("Monitor", {"command": "touch made", "description": "W"}), ("EnterWorktree", {"name": "a"})]
    lines = run(tmp_path, script(calls, "Done."))
    assert [denial["tool_name"] for denial in lines[-1]["permission_denials"]] == ["Monitor", "EnterWorktree"]
    assert not (tmp_path / "project" / "made").exists()
    [log] = tmp_path.rglob(f"{lines[-1]['session_id']}.jsonl")
    assert log.read_text().count('"decision":"deny"') == 2


def test_a_goal_is_worked_towards_until_it_is_met(tmp_path: Path) -> None:
    def judged(**verdict: object) -> str:
        return f"[[turn]]\nwhen = 'Judge from its conversation'\ntext = '{json.dumps(verdict)}'\n"

    turns = script([("Bash", {"command": "echo 1"})], "One.") + judged(ok=False, reason="2 is missing")
    turns += script([("Bash", {"command": "echo 2"})], "Two.") + judged(ok=True, reason="2 is there")
    (tmp_path / "script.toml").write_text(turns)
    argv = ["-p", "/goal 2 was printed", "--verbose", "--output-format", "stream-json", "--allowedTools", "Bash"]
    done = run_parley(
        [*argv, "--model", f"scripted:{tmp_path / 'script.toml'}"],
        cwd=tmp_path,
        env={"HOME": str(tmp_path), **base_environment(), "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1"},
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    values = [line["value"] for line in lines if line["type"] == "active_goal"]
    assert [value and value["iterations"] for value in values] == [0, 1, None]
    assert values[1]["last_reason"] == "2 is missing"
    assert [line["result"] for line in lines if line["type"] == "result"] == ["Two."]
    [init] = [line for line in lines if line.get("subtype") == "init"]
    assert "goal" in init["slash_commands"]
    assert "SetGoal" not in init["tools"]
    # A question of the same session starts without a goal.
    shown = run_parley(
        ["-p", "/goal", "--resume", init["session_id"], "--model", f"scripted:{tmp_path / 'script.toml'}"],
        cwd=tmp_path,
        env={"HOME": str(tmp_path), **base_environment()},
    )
    assert shown.stdout == "No goal set. Usage: `/goal <condition>`\n"
