"""How a log is judged, and what a report says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.conformance.registry import read_suite
from parley.conformance.report import (
    count_behaviours,
    format_comparison,
    format_html,
    format_text,
    read_outcome,
    score,
    to_json,
)
from parley.conformance.runner import CheckOutcome, SuiteOutcome, judge
from parley.conformance.scenario import EngineCheck
from parley.conformance.scenario_log import EngineRun, LogEntry, ScenarioLog
from parley.errors import UsageError

CHECKS = read_suite().checks
RESULT = {
    "type": "result", "subtype": "success", "is_error": False, "result": "x", "duration_ms": 1, "duration_api_ms": 1,
    "num_turns": 1, "session_id": "11111111-2222-4333-8444-555555555555", "uuid": "u1",
}  # fmt: skip


def log_of(*lines: dict[str, Any] | str, scenario: str = "two-turns") -> ScenarioLog:
    """A log of what an engine sent."""
    entries = [
        LogEntry(sent=False, seconds=0, raw=line, message=None)
        if isinstance(line, str)
        else LogEntry(sent=False, seconds=0, raw=json.dumps(line), message=line)
        for line in lines
    ]
    return ScenarioLog(scenario=scenario, runs=[EngineRun(argv=["engine"], entries=entries, exit_code=0)])


def judged(id: str, log: ScenarioLog) -> CheckOutcome:
    return judge(CHECKS[id], {log.scenario: log})


def test_a_field_that_is_missing_or_of_another_type_fails_its_check() -> None:
    assert judged("result.uuid", log_of(RESULT)).status == "passed"
    assert "`uuid` is missing" in judged("result.uuid", log_of({"type": "result"})).came
    assert judged("result.is_error", log_of({**RESULT, "is_error": 1})).came == "`is_error` is 1"
    assert judged("result.duration_ms", log_of({**RESULT, "duration_ms": True})).status == "failed"


def test_a_line_that_did_not_come_fails_and_the_outcome_says_what_came_instead() -> None:
    log = log_of({"type": "assistant"})
    log.missed.append("no `result` within 20 s")

    outcome = judged("result.uuid", log)

    assert outcome.status == "failed"
    assert outcome.came == "0 lines `result`; assistant; no `result` within 20 s; exit code 0"


@pytest.mark.parametrize(
    ("id", "line"),
    [
        ("every.json-lines", "Welcome!"),
        ("every.no-error-line", {"type": "error", "error": {}}),
        ("every.session-id", {**RESULT, "session_id": "default"}),
        ("every.result-fields", {key: value for key, value in RESULT.items() if key != "num_turns"}),
        ("every.lists", {"type": "assistant", "message": {"content": "text", "model": "m"}}),
        ("every.uuid", {"type": "assistant", "message": {}}),
        ("every.tool-pairs", {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "x"}]}}),
        ("every.asks-in-order", {"type": "control_request", "request": {"subtype": "can_use_tool"}}),
        ("every.control-answers", {"type": "control_response", "request_id": "r", "response": {}}),
    ],
)
def test_an_invariant_fails_in_any_scenario_and_names_it(id: str, line: dict[str, Any] | str) -> None:
    good, bad = log_of(RESULT), log_of(RESULT, line, scenario="deny")
    assert judge(CHECKS[id], {"two-turns": good}).status == "passed"

    outcome = judge(CHECKS[id], {"two-turns": good, "deny": bad})

    assert outcome.status == "failed"
    assert outcome.came.startswith("in deny: ")


def test_an_engine_that_says_nothing_passes_no_invariant() -> None:
    empty = log_of()
    assert {judge(check, {"two-turns": empty}).status for check in CHECKS.values() if check.scenario == "*"} == {
        "failed"
    }


def test_an_error_in_a_check_is_a_failure_of_the_check() -> None:
    check = EngineCheck(
        id="x",
        covers="out.result",
        scenario="two-turns",
        expects="e",
        basis="b",
        need=[{"line_has": ["result"], "is_error": False}, "interrupt_is_answered_first"],
    )
    assert judge(check, {"two-turns": log_of(RESULT)}).came.startswith("KeyError: 'interrupt'")


def test_a_scenario_that_cannot_be_played_is_skipped() -> None:
    log = log_of(scenario="dialect-c")
    log.skipped = "the engine refuses --stdio"
    outcome = judged("system.queued_C", log)
    assert (outcome.status, outcome.came) == ("skipped", "the engine refuses --stdio")


def outcome_of(name: str, **states: str) -> SuiteOutcome:
    checks = [
        CheckOutcome(id=id, rows=["out.result"], area="messages", level="core", status=state, came="<b>", sent="a\nb")
        for id, state in states.items()
    ]
    return SuiteOutcome(name=name, version="2.1.0", checks=checks)


def test_a_report_has_scores_and_says_of_a_failure_what_was_sent_expected_and_came() -> None:
    outcome = outcome_of("engine", first="passed", second="failed", third="skipped")
    outcome.checks.append(
        CheckOutcome(id="advised", rows=["out.error"], area="messages", level="core", status="failed", is_advice=True)
    )

    text = "\n".join(format_text(outcome))

    assert str(score(outcome.checks)) == "1 of 2 (50.0 %), 1 skipped"
    assert "core       messages       1 of 2 (50.0 %), 1 skipped" in text
    assert "FAILED second (scenario ; behaviours out.result)" in text
    assert "  received: <b>" in text
    assert "ADVICE advised" in text
    assert count_behaviours(outcome) == (0, 1)
    assert "<td><pre>&lt;b&gt;</pre></td>" in format_html(outcome)


def test_reports_of_several_engines_are_compared(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(to_json(outcome_of("one", first="passed", second="failed")))
    (tmp_path / "b.json").write_bytes(to_json(outcome_of("two", first="passed", second="passed")))

    lines = format_comparison([read_outcome(str(tmp_path / name)) for name in ("a.json", "b.json")])

    assert lines[0] == "[1] one 2.1.0"
    assert "core       messages                1/2          2/2" in lines
    assert "1 checks differ" in lines
    assert lines[-1].split() == ["second", "failed", "passed"]


def test_a_file_that_is_no_report_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(UsageError, match="cannot read the report"):
        read_outcome(str(tmp_path / "a.json"))
