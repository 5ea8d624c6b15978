"""Faults: their syntax, the requests they apply to, and what an engine sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.errors import ModelError, UsageError
from parley.models.accumulator import MessageAccumulator
from parley.models.base import Model
from parley.models.fakes import Scripted
from parley.models.faults import FAULT_KINDS, FOREVER_SECONDS, Fault, FaultPlan, read_fault
from parley.models.http.call import Deadlines
from parley.models.wrapping import FaultyModel
from parley.testing.virtual_time import run_in_virtual_time
from tests.helpers import paths
from tests.helpers.models import asking, counting, user
from tests.helpers.models import text as says
from tests.unit.models.test_recording import Said, answer

CALL = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "rm -rf everything"}}
ANSWER = answer(says("Let me see."), CALL, chunk_chars=10)
DEADLINES = Deadlines(first_byte_seconds=60, silence_seconds=45, request_seconds=900)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("reset", Fault("reset", 2, 1, 1)),
        ("reset=7", Fault("reset", 7, 1, 1)),
        ("stall@3", Fault("stall", 2, 3, 3)),
        ("pings=0.5@2-4", Fault("pings", 0.5, 2, 4)),
        ("overloaded@1-", Fault("overloaded", 0, 1, float("inf"))),
    ],
)
def test_a_fault_is_named_with_its_value_and_the_requests_it_strikes(text: str, fault: Fault) -> None:
    assert read_fault(text) == fault


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "invalid fault"),
        ("reset=x", "invalid fault"),
        ("earthquake", "unknown fault 'earthquake' \\(choose from stall-first-byte, stall,"),
        ("overloaded=3", "takes no value"),
        ("reset@0", "applies to no request"),
        ("reset@5-2", "applies to no request"),
    ],
)
def test_a_fault_that_no_one_knows_is_reported(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_fault(text)
    with pytest.raises(UsageError, match="option '--fault': .*" + said):
        FaultPlan.read([text], "option '--fault'")


def test_a_plan_counts_requests_as_they_come() -> None:
    plan = FaultPlan.read(["overloaded@2-3", "reset@3-"], "here")

    assert [fault and fault.name for fault in (plan.next() for _ in range(5))] == [
        None, "overloaded", "overloaded", "reset", "reset",
    ]  # fmt: skip


def struck(model: Model) -> tuple[float, MessageAccumulator, ModelError | None]:
    """The duration of an answer, its events, and its error."""

    async def listen() -> tuple[MessageAccumulator, ModelError | None]:
        growing = MessageAccumulator()
        try:
            async for event in model.stream(asking(user("Hi"))):
                growing.feed(event)
        except ModelError as exc:
            return growing, exc
        return growing, None

    seconds, (growing, problem) = run_in_virtual_time(listen())
    return round(seconds), growing, problem


@pytest.mark.parametrize(
    ("text", "seconds", "kind", "status", "blocks"),
    [
        ("stall-first-byte", 60, "timeout_error", None, 0),
        ("stall=0", 60, "timeout_error", None, 0),
        ("stall=5", 45, "timeout_error", None, 1),
        ("pings=5", 300, "timeout_error", None, 0),
        ("reset=0", 0, "connection_failed", None, 0),
        ("reset=5", 0, "connection_failed", None, 1),
        ("reset-bytes=300", 0, "connection_failed", None, 0),
        ("malformed", 0, None, None, 0),
        ("rate-limit", 0, "rate_limit_error", 429, 0),
        ("rate-limit-wait=7", 0, "rate_limit_error", 429, 0),
        ("overloaded", 0, "overloaded_error", 529, 0),
        ("server-error", 0, "api_error", 500, 0),
        ("wrong-order", 0, "bad_stream", None, 0),
        ("duplicate-index", 0, "bad_stream", None, 0),
        ("half-tool-call", 0, "connection_failed", None, 1),
    ],
)
def test_a_fault_is_an_error_that_may_pass_within_the_deadlines(
    text: str, seconds: int, kind: str | None, status: int | None, blocks: int
) -> None:
    took, growing, problem = struck(FaultyModel(Said(ANSWER), FaultPlan.read([text], "here"), DEADLINES))

    assert problem is not None
    assert (took, problem.kind, problem.status, problem.retryable) == (seconds, kind, status, True)
    assert problem.retry_after_seconds == (7 if text == "rate-limit-wait=7" else None)
    assert (len(growing.blocks), growing.finished) == (blocks, False)


def test_a_truncated_stream_ends_without_its_end() -> None:
    _, growing, problem = struck(FaultyModel(Said(ANSWER), FaultPlan.read(["truncated=3"], "here"), DEADLINES))

    assert (growing.finished, growing.blocks) == (False, [])
    assert problem is None or problem.retryable


def test_a_wait_that_ends_continues_with_the_answer() -> None:
    took, growing, problem = struck(
        FaultyModel(Said(ANSWER), FaultPlan.read(["stall-first-byte=30"], "here"), DEADLINES)
    )

    assert (took, growing.finished, problem) == (30, True, None)


def test_a_request_that_is_not_struck_is_answered_as_ever() -> None:
    model = FaultyModel(Said(ANSWER, ANSWER), FaultPlan.read(["reset"], "here"))

    assert [struck(model)[1].finished for _ in range(2)] == [False, True]


@pytest.mark.parametrize("name", FAULT_KINDS)
def test_every_fault_can_stand_in_a_script(tmp_path: Path, name: str) -> None:
    path = tmp_path / "script.toml"
    path.write_text(f'[[turn]]\ntools = [{{ name = "Bash", input = {{ a = "{"x" * 90}" }} }}]\nfault = "{name}"')
    _, growing, problem = struck(Scripted(path, counting(), lambda: DEADLINES))

    assert not growing.finished
    assert growing.blocks == []
    assert name == "truncated" or problem is not None


@pytest.mark.parametrize("fault", ['"earthquake"', '"reset@2"', "3"])
def test_a_script_with_a_fault_that_cannot_be_is_refused(tmp_path: Path, fault: Any) -> None:
    path = tmp_path / "script.toml"
    path.write_text(f"[[turn]]\nfault = {fault}")

    with pytest.raises(UsageError, match=r"invalid script .*"):
        Scripted(path, counting())


def test_every_fault_is_in_the_docs_with_its_default() -> None:
    docs = (paths.DOCS / "offline.md").read_text()
    rows = [line.split("|")[1:4] for line in docs.splitlines() if line.startswith("| `")]
    found = {name.strip(" `"): value.strip() for name, value, _ in rows}

    for name, row in FAULT_KINDS.items():
        default = "forever" if row.value == FOREVER_SECONDS else f"{row.value:g}"
        assert found[name] == (f"{row.unit}; {default}" if row.unit else "none")
