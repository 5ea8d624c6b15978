"""What a host hears of a subagent."""

from __future__ import annotations

from pathlib import Path

from parley.engine.agents.run import AgentTask, SubagentForwarder
from parley.engine.context.conversation import ClientDeclarations
from parley.engine.tasks.manager import TaskInfo
from parley.protocol.base import Message
from parley.protocol.messages.dialects import AnswerComplete
from parley.protocol.messages.notices import ToolProgress
from parley.protocol.messages.system import Status
from parley.tools.agent import AgentInput
from tests.helpers.session import SessionHarness


def make_task(harness: SessionHarness) -> AgentTask:
    record = harness.session.tasks.new_output("a1")
    info = TaskInfo(id="a1", run_id="r1", description="Look", tool_use_id="t1", record=record)
    call = AgentInput(description="Look", prompt="Look around", subagent_type="general-purpose")
    return AgentTask(info, call, None, harness.stamp.monotonic, in_background=True)


async def test_the_end_of_an_agents_answer_does_not_pass_for_that_of_the_sessions_own(tmp_path: Path) -> None:
    told: list[Message] = []

    async with SessionHarness(tmp_path, "[[turn]]\ntext = 'Hello.'\n") as harness:
        task = make_task(harness)
        voice = SubagentForwarder(told.append, task, ClientDeclarations(forwards_text=True), lambda: "u1")
        voice.forward(AnswerComplete(message_id="m1"))
        voice.forward(Status(status="requesting"))
        task.record.close()

    assert told == [Status(status="requesting")]


async def test_the_progress_of_an_agents_call_names_the_agent(tmp_path: Path) -> None:
    told: list[Message] = []
    progress = ToolProgress(tool_use_id="t2", tool_name="Bash", parent_tool_use_id=None, elapsed_time_seconds=1)

    async with SessionHarness(tmp_path, "[[turn]]\ntext = 'Hello.'\n") as harness:
        task = make_task(harness)
        SubagentForwarder(told.append, task, ClientDeclarations(forwards_text=True), lambda: "u1").forward(progress)
        task.record.close()

    (line,) = told
    assert isinstance(line, ToolProgress)
    assert (line.subagent_type, line.task_id, line.parent_tool_use_id) == ("general-purpose", "a1", "t1")


async def test_a_retry_of_an_agents_model_call_is_progress_of_the_call_that_started_it(tmp_path: Path) -> None:
    turns = """
[[turn]]
tools = [{ name = "Agent", id = "t1", input = { description = "Look", prompt = "SUB", subagent_type = "Explore" } }]
[[turn]]
error = { status = 529, type = "overloaded_error", message = "busy", retry_after_seconds = 0 }
[[turn]]
text = "Found."
[[turn]]
text = "Done."
"""
    async with SessionHarness(tmp_path, turns) as harness:
        harness.prompt("Go")
        await harness.receive("result")
    [started] = [line for line in harness.messages("system") if line["subtype"] == "task_started"]
    [progress] = harness.messages("tool_progress")
    assert progress["subagent_retry"] == {
        "agent_id": started["task_id"],
        "attempt": 1,
        "max_retries": 2,
        "retry_delay_ms": 0,
        "error_status": 529,
        "error_category": "server_error",
    }
    about = (progress["tool_use_id"], progress["tool_name"], progress["subagent_type"], progress["task_id"])
    assert about == ("t1", "Agent", "Explore", started["task_id"])
