"""One tool call's life, where it can go wrong between the decision and the run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parley.compose.composer import Composer
from parley.compose.launch_context import LaunchContext
from parley.compose.permissions import make_policy
from parley.compose.tools import make_workspace
from parley.engine.approval.gate import ApprovalGate, SessionMode
from parley.engine.approval.request import ApprovalChannel, PendingApprovals, input_digest
from parley.engine.clock import Clock, SessionIdentity
from parley.engine.hooks.registry import HookRegistry, SessionEvents
from parley.engine.session.config import PermissionConfig
from parley.engine.session.journal import Grants, Journal
from parley.engine.session.outbox import Activity, Outbox
from parley.engine.turn.tool_executor import CUT_OFF, InFlightCalls, ToolExecutor, ToolOutcome
from parley.permissions.base import Decision, ToolRequest
from parley.protocol.base import Json, Message, Struct
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.control import ControlRequest
from parley.protocol.messages.requests import CanUseTool, Request
from parley.protocol.options import CliOptions
from parley.stores.base import Entry, WrappedLog
from parley.stores.memory import MemoryStore
from parley.tools.base import Context, Tool, ToolOutput, make_context
from parley.workspace.base import Scope


class Anything(Struct, frozen=True):
    text: str


class Speak(Tool):
    """Notes what it was run with."""

    name = "Speak"
    description = ""
    reads_only = False
    input = Anything

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

    def send(self, *messages: Message) -> None:
        pass

    async def request(self, request: Request, request_id: str | None = None) -> Any:
        assert isinstance(request, CanUseTool)
        self.asked.append(request)
        return self.answer

    async def drain(self) -> bool:
        return True

    def pending_requests(self) -> list[ControlRequest]:
        return []


class WatchedLog(WrappedLog):
    """Reports every decision as it is written."""

    def __init__(self, on_decision: Callable[[Json], None]) -> None:
        super().__init__(MemoryStore().create("s"))
        self._on_decision = on_decision

    def append(self, *entries: Entry) -> None:
        super().append(*entries)
        for entry in entries:
            if entry.kind == "permission":
                self._on_decision(entry.message)


def no_hooks() -> SessionEvents:
    raise AssertionError("there are no hooks")


class Bench:
    """A caller on a bench: real rules, one tool, and a log that may be tampered with."""

    def __init__(self, folder: Path, answer: Json, agent_id: str | None = None) -> None:
        options, environment = CliOptions(model="offline"), {"HOME": str(folder)}
        basis = LaunchContext(options, environment, str(folder))
        self.host = Answering(answer)
        self.tool = Speak()
        self.records: list[Json] = []
        self.warnings: list[str] = []
        context, clock = make_context(make_workspace(basis, "s"), str(folder)), Clock()
        warn = self.warnings.append
        config = Composer(options, environment, str(folder), warn=warn).make_config()
        permissions = PermissionConfig(policy=make_policy(basis, "s"))
        journal = Journal(WatchedLog(self.note), clock, Grants(SessionIdentity("s"), str(folder)))
        outbox = Outbox(SessionIdentity("s"), clock, self.host)
        hooks = HookRegistry(config, self.host, outbox, no_hooks)
        channel = ApprovalChannel(self.host, outbox, Activity(outbox), PendingApprovals(journal, clock.new_uuid))
        mode = SessionMode(permissions, config.settings, journal, outbox, warn)
        self.gate = ApprovalGate(permissions, channel, journal, mode, hooks, warn)
        agent = None if agent_id is None else {"agent_id": agent_id, "agent_type": "general-purpose"}
        self.caller = ToolExecutor({"Speak": self.tool}, self.gate, context, hooks, warn, agent)

    def note(self, record: Json) -> None:
        self.records.append(record)

    async def call(self, text: str) -> ToolOutcome:
        call = ToolUse({"type": "tool_use", "id": "t1", "name": "Speak", "input": {"text": text}})
        return await self.caller.run(call, lambda: "default")


class Tampering(Bench):
    """Something gets hold of the input that is judged, and changes it once its approval is on record."""

    def __init__(self, folder: Path, answer: Json) -> None:
        super().__init__(folder, answer)
        permits = self.gate.policy
        permits.list_rules()  # opens a lazy policy, which replaces its methods then
        decide = permits.decide

        def remembered(request: ToolRequest, mode: str) -> Decision:
            self.judged = request.input
            return decide(request, mode)

        permits.decide = remembered  # type: ignore[method-assign]  # the fault that the hash is there for

    def note(self, record: Json) -> None:
        super().note(record)
        if record["decision"] == "allow":
            self.judged["text"] = "something else"


async def test_an_input_that_changed_after_its_approval_does_not_run(tmp_path: Path) -> None:
    bench = Tampering(tmp_path, {"behavior": "allow", "updatedInput": {"text": "approved"}})
    called = await bench.call("proposed")

    assert bench.tool.ran == []
    assert called.denied is not None
    assert called.denied.source == "internal"
    assert called.output.is_error is True
    assert bench.warnings == ["INTERNAL ERROR: the input of Speak (t1) is not the one that was approved"]


async def test_such_a_fault_is_on_record_with_both_hashes(tmp_path: Path) -> None:
    bench = Tampering(tmp_path, {"behavior": "allow", "updatedInput": {"text": "approved"}})
    await bench.call("proposed")

    assert [(record["decision"], record["source"], record["input_sha256"]) for record in bench.records] == [
        ("allow", "host", input_digest({"text": "approved"})),
        ("deny", "internal", input_digest({"text": "something else"})),
    ]


@pytest.mark.parametrize("answer", [{"behavior": "allow"}, {"behavior": "allow", "updatedInput": {"text": "approved"}}])
async def test_nothing_runs_that_was_altered_after_approval(tmp_path: Path, answer: Json) -> None:
    bench = Tampering(tmp_path, answer)

    assert (await bench.call("proposed")).output.is_error is True
    assert bench.tool.ran == []


async def test_the_call_of_a_subagent_is_asked_about_and_recorded_with_its_id(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"behavior": "allow"}, agent_id="a1")
    await bench.call("hello")

    assert bench.tool.ran == ["hello"]
    assert [asked.agent_id for asked in bench.host.asked] == ["a1"]
    assert [record["agent_id"] for record in bench.records] == ["a1"]


GIVEN = ToolOutcome(output=ToolOutput(content="secret"))
FAILED = ToolOutcome(output=ToolOutput(content="no such file", is_error=True))


@pytest.mark.parametrize(
    ("called", "guarded", "shown"), [(GIVEN, False, True), (GIVEN, True, False), (FAILED, True, True)]
)
def test_what_a_call_gave_that_was_cut_off_is_had_once_and_withheld_where_it_is_guarded(
    called: ToolOutcome, guarded: bool, shown: bool
) -> None:
    in_flight = InFlightCalls()
    with contextlib.suppress(asyncio.CancelledError), in_flight.track("t1"):
        in_flight.start("t1")
        if guarded:
            in_flight.guard("t1")
        in_flight.record_output("t1", called)
        assert in_flight.has_started
        raise asyncio.CancelledError
    taken = in_flight.pop_output("t1")
    assert taken is not None
    assert (taken == called, CUT_OFF in str(taken.output.content)) == (shown, not shown)
    assert (in_flight.pop_output("t1"), in_flight.has_started) == (None, False)


def test_nothing_is_left_of_a_call_that_has_ended() -> None:
    in_flight = InFlightCalls()
    with in_flight.track("t1"):
        in_flight.start("t1")
        in_flight.record_output("t1", GIVEN)
    assert (in_flight.pop_output("t1"), in_flight.has_started) == (None, False)
