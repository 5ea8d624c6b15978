"""Background tasks as a host and a model see them: real commands, in a real session."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from parley.compose.composer import Composer
from parley.engine.session.prompts import NOTIFICATION, Prompt, PromptQueue
from parley.engine.session.session import Session
from parley.engine.turn.turn import ToolHeartbeat
from parley.host import HostGone
from parley.protocol.base import Message
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.control import ControlRequest
from parley.protocol.messages.conversation import User, UserContent
from parley.protocol.messages.notices import ToolProgress
from parley.protocol.messages.requests import Request
from parley.tools.base import CommandOrder
from tests.helpers.session import Json, SessionHarness

ALLOWED = ("Bash", "TaskOutput", "TaskStop", "BashOutput", "KillShell")


def script(*turns: str | tuple[str, Json]) -> str:
    """Turns of a model: a text, or a call of a tool."""
    parts = []
    for turn in turns:
        if isinstance(turn, str):
            parts.append(f"[[turn]]\ntext = {json.dumps(turn)}\n")
        else:
            name, input = turn
            call = {"type": "tool_use", "id": f"toolu_{len(parts)}", "name": name, "input": input}
            parts.append(f"[[turn]]\nblocks = [{table(call)}]\n")
    return "".join(parts)


def table(value: Json) -> str:
    """JSON as an inline table of TOML."""
    pairs = (f"{key} = {table(one) if isinstance(one, dict) else json.dumps(one)}" for key, one in value.items())
    return "{" + ", ".join(pairs) + "}"


def background(command: str, **input: Any) -> tuple[str, Json]:
    return "Bash", {"command": command, "description": "A job", "run_in_background": True, **input}


async def at(
    folder: Path, turns: str, scenario: Callable[[SessionHarness], Awaitable[None]], **environment: str
) -> None:
    harness = SessionHarness(folder, turns, allowed_tools=ALLOWED)
    harness.environment |= environment
    async with asyncio.timeout(90), harness:
        await scenario(harness)


def kinds(lines: list[Json]) -> list[str]:
    """Types and subtypes; results with their origin."""
    names = []
    for line in lines:
        name = f"{line['type']}/{line['subtype']}" if line["type"] == "system" else line["type"]
        names.append(f"{name} of a task" if line.get("origin", {}).get("kind") == NOTIFICATION else name)
    return names


def told_of(harness: SessionHarness, subtype: str) -> list[Json]:
    return [line for line in harness.messages("system") if line["subtype"] == subtype]


def result_of(harness: SessionHarness, tool_use_id: str) -> Json:
    """The line with the result of a call."""
    found = [
        line for line in harness.messages("user") if line["message"]["content"][0].get("tool_use_id") == tool_use_id
    ]
    assert len(found) == 1
    return found[0]


def text_of(harness: SessionHarness, tool_use_id: str) -> str:
    return str(result_of(harness, tool_use_id)["message"]["content"][0]["content"])


async def test_a_task_is_reported_and_its_end_starts_a_turn(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Go")
        await harness.receive("result")
        (tmp_path / "go").touch()
        await harness.receive("result")
        assert kinds(harness.lines) == [
            "system/init",
            "assistant",
            "system/background_tasks_changed",
            "system/task_started",
            "user",
            "assistant",
            "result",
            "system/task_updated",
            "system/task_notification",
            "system/background_tasks_changed",
            "system/init",
            "assistant",
            "result of a task",
        ]
        changed, started, result = harness.lines[2:5]
        task = changed["tasks"][0]
        place = tmp_path / f"claude-{os.getuid()}"
        assert task == {
            "task_id": started["task_id"],
            "run_id": started["run_id"],
            "task_type": "local_bash",
            "description": "A job",
        }
        assert (started["tool_use_id"], started["is_backgrounded"]) == ("toolu_0", True)
        assert result["tool_use_result"]["backgroundTaskId"] == task["task_id"]
        updated, notification, changed = harness.lines[7:10]
        assert updated["patch"]["status"] == "completed"
        assert notification["summary"] == 'Background command "A job" completed (exit code 0)'
        output = Path(notification["output_file"])
        assert output.name == f"{task['task_id']}.output"
        assert output.is_relative_to(place)
        assert (text_in(output), mode_of(output), mode_of(place)) == ("done\n", 0o600, 0o700)
        assert changed["tasks"] == []
        assert harness.lines[-1]["origin"] == {
            "kind": "task-notification",
            "producer": "session-task",
            "runId": task["run_id"],
        }

    turns = script(background("until [ -e go ]; do sleep 0.01; done; echo done"), "Started.", "It is over.")
    await at(tmp_path, turns, scenario)


async def test_the_model_is_notified_of_an_ended_task_and_its_output_file(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Go")
        await harness.receive("result")
        await harness.receive("result")
        prompt = harness.session.journal.history.render()[-2]["content"][0]["text"]
        assert "(A job) failed with exit code 3" in prompt
        assert told_of(harness, "task_notification")[0]["output_file"] in prompt

    await at(tmp_path, script(background("exit 3"), "Started.", "It failed."), scenario)


async def test_after_the_end_of_input_tasks_are_waited_for_and_their_turn_runs(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Go")
        await harness.receive("result")
        await harness.close()
        assert kinds(harness.lines)[-6:] == [
            "system/task_updated",
            "system/task_notification",
            "system/background_tasks_changed",
            "system/init",
            "assistant",
            "result of a task",
        ]

    await at(tmp_path, script(background("sleep 0.3"), "Started.", "It is over."), scenario)


async def test_tasks_are_not_waited_for_beyond_the_ceiling(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Go")
        await harness.receive("result")
        await harness.close()
        assert [line["patch"]["status"] for line in told_of(harness, "task_updated")] == ["killed"]
        assert kinds(harness.lines)[-1] == "system/background_tasks_changed"

    turns = script(background("sleep 600"), "Started.")
    await at(tmp_path, turns, scenario, CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS="200")


async def test_the_host_can_stop_a_task_and_no_turn_follows(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Go")
        started = await harness.receive("system", "task_started")
        await harness.receive("result")
        answer = await harness.request("stop_task", task_id=started["task_id"])
        assert answer["response"]["response"] == {}
        assert kinds(harness.lines)[-4:] == [
            "system/task_updated",
            "system/task_notification",
            "system/background_tasks_changed",
            "control_response",
        ]
        assert harness.lines[-4]["patch"]["status"] == "killed"
        assert (harness.lines[-3]["status"], harness.lines[-3]["summary"]) == ("stopped", "A job")
        again = await harness.request("stop_task", task_id=started["task_id"])
        assert again["response"]["subtype"] == "success"
        unknown = await harness.request("stop_task", task_id="nope")
        assert unknown["response"]["subtype"] == "error"
        assert "nope" in unknown["response"]["error"]
        await harness.close()
        assert len(list(harness.messages("result"))) == 1

    await at(tmp_path, script(background("sleep 600"), "Started."), scenario)


async def test_a_stopped_task_leaves_no_process(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Go")
        started = await harness.receive("system", "task_started")
        await harness.receive("result")
        await eventually(lambda: text_in(tmp_path / "pid").endswith("\n"))
        await harness.request("stop_task", task_id=started["task_id"])
        await eventually(lambda: not alive(int(text_in(tmp_path / "pid"))))

    await at(tmp_path, script(background("setsid sleep 600 & echo $! > pid; wait"), "Started."), scenario)


async def eventually(true: Callable[[], bool]) -> None:
    """The talk has a deadline, so this has one."""
    while not true():  # noqa: ASYNC110  # a file and a process give no event
        await asyncio.sleep(0.01)


def text_in(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_task_can_be_stopped_before_anybody_began_to_watch_it(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        tasks = harness.session.tasks
        order = CommandOrder(
            argv=["/bin/bash", "-c", "sleep 600"],
            command="sleep 600",
            description="A job",
            tool_use_id="toolu_1",
            cwd=str(tmp_path),
            environment={},
            timeout_seconds=600,
        )
        task = await tasks.start_command(order)
        tasks.stop(task.id)
        assert task.process.ended.done()
        await harness.receive("system", "task_notification")

    await at(tmp_path, script(), scenario)


async def test_the_host_reads_the_end_of_a_tasks_output(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Go")
        started = await harness.receive("system", "task_started")
        await harness.receive("system", "task_notification")
        answer = await harness.request("get_task_output", task_id=started["task_id"])
        told = answer["response"]["response"]
        assert (len(told["output"]), told["total_bytes"], told["truncated"]) == (8192, 108_894, True)
        assert told["output"].endswith("19999\n20000\n")
        unknown = await harness.request("get_task_output", task_id="nope")
        assert unknown["response"]["subtype"] == "error"

    await at(tmp_path, script(background("seq 1 20000"), "Started.", "Over."), scenario)


async def test_the_model_can_wait_for_a_task_and_is_not_notified_again(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Go")
        result = await harness.receive("result")
        assert result["result"] == "I saw it."
        await harness.close()
        assert len(list(harness.messages("result"))) == 1
        assert len(told_of(harness, "task_notification")) == 1
        shown = result_of(harness, "toolu_1")
        task = told_of(harness, "task_started")[0]["task_id"]
        assert text_of(harness, "toolu_1").startswith(f"Task {task} (A job): completed (exit code 0)\nOutput (also in ")
        assert text_of(harness, "toolu_1").endswith(":\nmade it\n")
        assert shown["tool_use_result"] == {
            "retrieval_status": "success",
            "task": {
                "task_id": task,
                "task_type": "local_bash",
                "status": "completed",
                "description": "A job",
                "output": "made it\n",
                "exitCode": 0,
            },
        }

    # Ids are counted, so the first task has the same id in every run.
    id = await first_task_id(tmp_path)
    turns = script(background("sleep 0.2; echo made it"), ("TaskOutput", {"task_id": id}), "I saw it.")
    await at(tmp_path / "room", turns, scenario)


async def first_task_id(folder: Path) -> str:
    """The id that the first task of a session gets in a room."""
    found = []

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Go")
        found.append((await harness.receive("system", "task_started"))["task_id"])

    for name in ("before", "room"):
        (folder / name).mkdir()
    await at(folder / "before", script(background("true"), "Started.", "Over."), scenario)
    return str(found[0])


async def test_a_look_at_a_running_task_does_not_wait_if_it_should_not(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Go")
        await harness.receive("result")
        assert "running\nNo output so far." in text_of(harness, "toolu_1")
        assert result_of(harness, "toolu_1")["tool_use_result"]["retrieval_status"] == "not_ready"
        assert result_of(harness, "toolu_2")["tool_use_result"]["retrieval_status"] == "timeout"
        assert text_of(harness, "toolu_3").startswith("Stopped task ")
        assert result_of(harness, "toolu_3")["tool_use_result"]["command"] == "sleep 600"
        assert "is not running: its status is killed" in text_of(harness, "toolu_4")
        assert "There is no task 'nope'. The tasks of this session are: b" in text_of(harness, "toolu_5")

    id = await first_task_id(tmp_path)
    turns = script(
        background("sleep 600"),
        ("TaskOutput", {"task_id": id, "block": False}),
        ("BashOutput", {"bash_id": id, "timeout": 50}),
        ("KillShell", {"shell_id": id}),
        ("TaskStop", {"task_id": id}),
        ("TaskStop", {"task_id": "nope"}),
        "Done.",
    )
    await at(tmp_path / "room", turns, scenario)


async def test_a_task_has_its_time_too(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Go")
        await harness.receive("result")
        notification = await harness.receive("system", "task_notification")
        assert notification["status"] == "failed"
        assert notification["summary"] == 'Background command "A job" reached its time limit of 0.2 s and was ended'
        assert (await harness.receive("result"))["result"] == "It took too long."

    await at(tmp_path, script(background("sleep 600", timeout=200), "Started.", "It took too long."), scenario)


async def test_a_task_that_cannot_be_started_is_an_error_and_no_task(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Go")
        await harness.receive("result")
        assert result_of(harness, "toolu_0")["message"]["content"][0]["is_error"] is True
        assert told_of(harness, "task_started") == []

    await at(tmp_path, script(background("echo a\0b"), "It failed."), scenario)
    assert list(tmp_path.glob("claude-*/**/*.output")) == []


async def test_where_the_temporary_folder_is_taken_output_goes_to_the_sessions_own(tmp_path: Path) -> None:
    (tmp_path / f"claude-{os.getuid()}").symlink_to(tmp_path)

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("Go")
        notification = await harness.receive("system", "task_notification")
        output = Path(notification["output_file"])
        assert output.is_relative_to(tmp_path / "home" / ".claude" / "projects")
        assert text_in(output) == "kept\n"

    await at(tmp_path, script(background("echo kept"), "Started.", "Over."), scenario)


async def test_the_notification_of_a_task_is_never_joined_with_what_a_person_said() -> None:
    inbox = PromptQueue()
    said = [Prompt(content=[{"type": "text", "text": text}], uuid=text) for text in "abcd"]
    notices = [Prompt(content=[], uuid=f"n{at}", origin={"kind": NOTIFICATION}) for at in range(2)]
    for prompt in (said[0], said[1], *notices, said[2], said[3]):
        inbox.put(prompt)
    taken = [await inbox.take(merge=True) for _ in range(4)]
    assert taken == [said[:2], notices[:1], notices[1:], said[2:]]


async def test_a_prompt_that_no_one_typed_is_not_replayed(tmp_path: Path) -> None:
    turns = script(background("true"), "Started.", "Over.")
    async with (
        asyncio.timeout(90),
        SessionHarness(tmp_path, turns, allowed_tools=ALLOWED, replay_user_messages=True) as harness,
    ):
        harness.prompt("Go")
        await harness.receive("result")
        await harness.receive("result")
        replayed = [line["message"]["content"] for line in harness.messages("user") if line.get("isReplay")]
        assert replayed == ["Go"]


async def test_a_long_call_gives_signs_of_life() -> None:
    call = ToolUse({"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}})
    told: list[Message] = []

    enough = asyncio.Event()

    def tell(message: Message) -> None:
        told.append(message)
        if len(told) == 2:
            enough.set()

    async with asyncio.timeout(60):
        with ToolHeartbeat(tell, call, every_seconds=0.25):
            await enough.wait()
    await asyncio.sleep(0)
    assert told == [
        ToolProgress(
            tool_use_id=f"toolu_1-heartbeat-{beat}",
            tool_name="Bash",
            parent_tool_use_id="toolu_1",
            elapsed_time_seconds=0.25 * (beat + 1),
            heartbeat=True,
        )
        for beat in range(2)
    ]


class Nobody:
    """A host that does not listen."""

    def send(self, *messages: Message) -> None:
        pass

    async def request(self, request: Request, request_id: str | None = None) -> Any:
        raise HostGone("nobody is there")

    async def drain(self) -> bool:
        return False

    def pending_requests(self) -> list[ControlRequest]:
        return []


async def test_a_session_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    turns = script(background("echo $$ > task; sleep 600"), ("Bash", {"command": "echo $$ > call; sleep 600"}))
    harness = SessionHarness(tmp_path, turns, allowed_tools=ALLOWED)
    setup = Composer(harness.options, harness.environment, str(tmp_path), harness.stamp).make_config()
    session = Session(setup, Nobody())
    session.handle(User(message=UserContent(content="Go")))
    running = asyncio.create_task(session.run_turns())
    async with asyncio.timeout(90):
        await eventually(lambda: all(text_in(tmp_path / name).endswith("\n") for name in ("task", "call")))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    setup.storage.log.close()
    assert [name for name in ("task", "call") if alive(int(text_in(tmp_path / name)))] == []
