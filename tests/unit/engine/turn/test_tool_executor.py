"""One tool call's life, where it can go wrong between the decision and the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from parley.compose.launch_context import LaunchContext
from parley.compose.permissions import make_policy
from parley.compose.tools import tool_context
from parley.engine.approval.gate import ApprovalGate
from parley.engine.approval.input_digest import input_digest
from parley.engine.turn.tool_executor import ToolExecutor
from parley.engine.turn.tool_outcome import ToolOutcome
from parley.permissions.base import Decision, ToolRequest
from parley.protocol.base import Json, Struct
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.requests import CanUseTool
from parley.protocol.options import CliOptions
from parley.tools.base import Context, ToolOutput
from parley.workspace.base import Scope


class Anything(Struct, frozen=True):
    text: str


class Speak:
    """Notes what it was run with."""

    name: ClassVar[str] = "Speak"
    description: ClassVar[str] = ""
    reads_only: ClassVar[bool] = False
    input: ClassVar[type[Struct]] = Anything

    def __init__(self) -> None:
        self.ran: list[str] = []

    async def run(self, call: Anything, context: Context, reach: Scope) -> ToolOutput:
        self.ran.append(call.text)
        return ToolOutput(content="spoken")


class Answering:
    """A host in this process, which keeps its hand on the answer it gave."""

    def __init__(self, answer: Json) -> None:
        self.answer = answer
        self.asked: list[CanUseTool] = []

    async def request(self, request: CanUseTool, request_id: str | None = None) -> Any:
        self.asked.append(request)
        return self.answer


class Bench:
    """A caller on a bench: real rules, one tool, and a log that may be tampered with."""

    def __init__(self, folder: Path, answer: Json, agent_id: str | None = None) -> None:
        basis = LaunchContext(CliOptions(model="offline"), {"HOME": str(folder)}, str(folder))
        self.host = Answering(answer)
        self.tool = Speak()
        self.records: list[Json] = []
        self.complaints: list[str] = []
        asker = ApprovalGate(make_policy(basis, "s"), self.host)
        context = tool_context(basis, "s")
        agent = None if agent_id is None else {"agent_id": agent_id, "agent_type": "general-purpose"}
        self.caller = ToolExecutor({"Speak": self.tool}, asker, context, self.note, self.complaints.append, agent)

    def note(self, kind: str, record: Json) -> None:
        self.records.append(record)

    async def call(self, text: str) -> ToolOutcome:
        call = ToolUse({"type": "tool_use", "id": "t1", "name": "Speak", "input": {"text": text}})
        return await self.caller.run(call, lambda: "default")


class Tampering(Bench):
    """Something gets hold of the input that is judged, and changes it once its approval is on record."""

    def __init__(self, folder: Path, answer: Json) -> None:
        super().__init__(folder, answer)
        permits = self.caller.gate.policy
        decide = permits.decide

        def remembered(request: ToolRequest, mode: str) -> Decision:
            self.judged = request.input
            return decide(request, mode)

        permits.decide = remembered  # type: ignore[method-assign]  # the fault that the hash is there for

    def note(self, kind: str, record: Json) -> None:
        super().note(kind, record)
        if record["decision"] == "allow":
            self.judged["text"] = "something else"


async def test_an_input_that_changed_after_its_approval_does_not_run(tmp_path: Path) -> None:
    bench = Tampering(tmp_path, {"behavior": "allow", "updatedInput": {"text": "approved"}})
    called = await bench.call("proposed")

    assert bench.tool.ran == []
    assert called.denied is not None
    assert called.denied.source == "internal"
    assert called.output.is_error is True
    assert bench.complaints == ["INTERNAL ERROR: the input of Speak (t1) is not the one that was approved"]


async def test_such_a_fault_is_on_record_with_both_hashes(tmp_path: Path) -> None:
    bench = Tampering(tmp_path, {"behavior": "allow", "updatedInput": {"text": "approved"}})
    await bench.call("proposed")

    assert [(record["decision"], record["source"], record["input_sha256"]) for record in bench.records] == [
        ("allow", "host", input_digest({"text": "approved"})),
        ("deny", "internal", input_digest({"text": "something else"})),
    ]


@pytest.mark.parametrize("answer", [{"behavior": "allow"}, {"behavior": "allow", "updatedInput": {"text": "approved"}}])
async def test_nothing_runs_that_was_altered_whoever_gave_the_input(tmp_path: Path, answer: Json) -> None:
    bench = Tampering(tmp_path, answer)

    assert (await bench.call("proposed")).output.is_error is True
    assert bench.tool.ran == []


async def test_the_call_of_a_subagent_is_asked_about_and_recorded_with_its_id(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"behavior": "allow"}, agent_id="a1")
    await bench.call("hello")

    assert bench.tool.ran == ["hello"]
    assert [asked.agent_id for asked in bench.host.asked] == ["a1"]
    assert [record["agent_id"] for record in bench.records] == ["a1"]
