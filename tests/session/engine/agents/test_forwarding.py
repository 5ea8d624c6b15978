"""What a host hears of a subagent."""

from __future__ import annotations

from pathlib import Path

from parley.engine.agents.forwarding import SubagentForwarder
from parley.engine.agents.task import AgentTask
from parley.engine.tasks.task import TaskInfo
from parley.protocol.base import Message
from parley.protocol.messages.dialects import AnswerComplete
from parley.protocol.messages.system import Status
from parley.tools.delegation.calls import AgentInput
from tests.helpers.session import SessionHarness


async def test_the_end_of_an_agents_answer_does_not_pass_for_that_of_the_sessions_own(tmp_path: Path) -> None:
    told: list[Message] = []

    async with SessionHarness(tmp_path, "[[turn]]\ntext = 'Hello.'\n") as harness:
        record = harness.session.tasks.new_output("a1")
        info = TaskInfo(id="a1", run_id="r1", description="Look", tool_use_id="t1", record=record)
        call = AgentInput(description="Look", prompt="Look around", subagent_type="general-purpose")
        task = AgentTask(info, call, None, harness.stamp.monotonic, in_background=True)
        voice = SubagentForwarder(told.append, task, forwards_text=lambda: True)
        voice.forward(AnswerComplete(message_id="m1"))
        voice.forward(Status(status="requesting"))
        task.record.close()

    assert told == [Status(status="requesting")]
