"""Runs the suite on an engine: plays the scenarios, a few at a time, and judges their logs.

Nothing that an engine does ends the suite. A scenario that misses a deadline is judged by what came before it; an error
in a check is a failure of that check. If two scenarios in a row get no line at all, the later ones wait less.

The target can be a gateway: a bridge makes each of its sessions look like an engine on a pipe (`gateway_bridge.py`).
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from parley.conformance.driver import STREAM, EngineDriver, Missed
from parley.conformance.registry import EVERY, LEVELS, judge_needs, read_suite
from parley.conformance.scenario import Check, EngineCheck, read_behaviours
from parley.conformance.scenario_log import Mismatch, ScenarioLog, shown
from parley.protocol.base import Struct

DEADLINE_SECONDS = 20.0
SILENT_SECONDS = 3.0
"""The deadline for an engine that has not said anything in two scenarios."""
SCENARIO_DEADLINES = 5
"""How many deadlines a scenario may take in all."""
SENT_CHARS = 900
TOKEN = "PARLEY_TOKEN"


class CheckOutcome(Struct, kw_only=True):
    """The outcome of one check."""

    id: str
    rows: list[str]
    area: str
    level: str
    status: str
    """passed, failed or skipped."""
    is_advice: bool = False
    scenario: str = ""
    expected: str = ""
    complaint: str = ""
    sent: str = ""
    came: str = ""
    basis: str = ""


class SuiteOutcome(Struct, kw_only=True):
    """The outcome of a suite, as it is written to a file."""

    kind: str = "engine"
    """engine or client."""
    name: str
    version: str = ""
    seconds: float = 0
    checks: list[CheckOutcome] = []


class SuitePlan(Struct, frozen=True, kw_only=True):
    """What is run, and how."""

    levels: tuple[str, ...] = LEVELS
    suite: str = "all"
    """`complaints`: only the checks that public issues ask for."""
    only: tuple[str, ...] = ()
    """Patterns of the ids of checks, behaviours or scenarios; empty for all."""
    workers: int = 2
    deadline_seconds: float = DEADLINE_SECONDS
    stops_at_failure: bool = False
    is_gateway: bool = False
    """Whether the target is a gateway, on which not all scenarios can be played."""
    env: dict[str, str] = {}
    """Further variables of the engine."""


def select_checks(plan: SuitePlan) -> list[EngineCheck]:
    """The checks of a plan, in their order."""
    suite = read_suite()

    def is_named(check: EngineCheck) -> bool:
        names = (check.id, check.scenario, *check.rows)
        return not plan.only or any(fnmatchcase(name, pattern) for name in names for pattern in plan.only)

    def is_possible(check: EngineCheck) -> bool:
        return not plan.is_gateway or check.scenario == EVERY or suite.scenarios[check.scenario].on_gateways

    chosen = [check for check in suite.checks.values() if check.behaviour.level in plan.levels and is_named(check)]
    return [check for check in chosen if is_possible(check) and (check.complaint or plan.suite == "all")]


def select_scenarios(plan: SuitePlan, checks: Collection[EngineCheck]) -> list[str]:
    """The scenarios of a plan that checks need. Invariants alone need them all."""
    wanted = {check.scenario for check in checks}
    return [
        name
        for name, scenario in read_suite().scenarios.items()
        if (name in wanted or wanted == {EVERY}) and (scenario.on_gateways or not plan.is_gateway)
    ]


async def run_suite(
    command: tuple[str, ...], plan: SuitePlan, progress: Callable[[str, int], None] = lambda name, failed: None
) -> SuiteOutcome:
    """Run the plan. `progress` is called after each scenario, with the number of its failed checks."""
    started = time.monotonic()
    checks = select_checks(plan)
    names = select_scenarios(plan, checks)
    logs: dict[str, ScenarioLog] = {}
    queue, state = list(names), _Silence(plan.deadline_seconds)
    is_stopped = asyncio.Event()

    async def work() -> None:
        while queue and not is_stopped.is_set():
            name = queue.pop(0)
            log = logs[name] = await play_scenario(command, name, state.deadline_seconds, plan.env)
            state.add(log)
            outcomes = [judge(check, {name: log}) for check in checks if check.scenario in (name, EVERY)]
            failed = sum(each.status == "failed" and not each.is_advice for each in outcomes)
            progress(name, failed)
            if failed and plan.stops_at_failure:
                is_stopped.set()

    await asyncio.gather(*(work() for _ in range(max(1, plan.workers))))
    ordered = {name: logs[name] for name in names if name in logs}
    return SuiteOutcome(
        name=" ".join(command),
        version=find_version(ordered.values()),
        seconds=round(time.monotonic() - started, 1),
        checks=[judge(check, ordered) for check in checks if check.scenario in ordered or check.scenario == EVERY],
    )


class _Silence:
    """Waits less for an engine that says nothing."""

    def __init__(self, deadline_seconds: float) -> None:
        self.deadline_seconds = deadline_seconds
        self._silent = 0

    def add(self, log: ScenarioLog) -> None:
        is_silent = bool(log.missed) and not any(not entry.sent for entry in log.entries)
        self._silent = self._silent + 1 if is_silent else 0
        if self._silent >= 2:
            self.deadline_seconds = min(self.deadline_seconds, SILENT_SECONDS)


async def play_scenario(
    command: tuple[str, ...], name: str, deadline_seconds: float, env: Mapping[str, str] | None = None
) -> ScenarioLog:
    """Play a scenario to its end, its deadline or its first miss."""
    scenario = read_suite().scenarios[name]
    async with EngineDriver(command, scenario, deadline_seconds=deadline_seconds, env=env) as engine:
        try:
            async with asyncio.timeout(deadline_seconds * SCENARIO_DEADLINES):
                await engine.play()
        except Missed:
            pass  # it is in the log
        except TimeoutError:
            engine.missed(f"the scenario did not end within {deadline_seconds * SCENARIO_DEADLINES:g} s")
        except Exception as exc:  # what an engine sends may break a scenario: that is a finding
            engine.missed(f"the scenario failed: {type(exc).__name__}: {exc}")
        if scenario.is_dialect and engine.is_silent:
            engine.log.skipped = "the engine does not have this dialect: it ended without a line"
    return engine.log


def judge(check: EngineCheck, logs: dict[str, ScenarioLog]) -> CheckOutcome:
    """Judge a check by the log of its scenario; an invariant by all logs."""
    outcome = make_outcome(check)
    judged = list(logs.values()) if check.scenario == EVERY else [logs[check.scenario]]
    if check.scenario == EVERY and all(entry.sent for log in judged for entry in log.entries):
        outcome.status, outcome.came = "failed", "the engine said nothing in any scenario"
        return outcome
    for log in judged:
        outcome.sent = describe_sent(log)
        if log.skipped:
            if check.scenario != EVERY:
                outcome.status, outcome.came = "skipped", log.skipped
            continue
        came = find_failure(judge_needs, check, log)
        if came is not None:
            outcome.status = "failed"
            outcome.came = f"in {log.scenario}: {came}" if check.scenario == EVERY else came
            return outcome
    return outcome


def make_outcome(check: Check, failure: str | None = None) -> CheckOutcome:
    """A check that passed, or failed with what came instead."""
    return CheckOutcome(
        id=check.id,
        rows=list(check.rows),
        area=check.behaviour.area,
        level=check.behaviour.level,
        status="passed" if failure is None else "failed",
        is_advice=check.is_advice,
        scenario=check.scenario,
        expected=check.expects,
        complaint=check.complaint,
        came=failure or "",
        basis=check.basis,
    )


def find_failure(judge: Callable[[Any, Any], None], check: Check, log: Any) -> str | None:
    """What came instead of what a check expects; None if it passes."""
    try:
        judge(check, log)
    except Mismatch as exc:
        return str(exc)
    except Exception as exc:  # a check must not rely on the shape of what an engine sends
        return f"{type(exc).__name__}: {exc}; {log.summary()}"
    return None


def describe_sent(log: ScenarioLog) -> str:
    """The flags and the first lines that the engine was sent."""
    parts = []
    for run in log.runs:
        flags = [word for word in run.argv[1:] if word not in STREAM]
        parts.append(f"$ ENGINE {' '.join(shown(word)[:120] for word in flags)}")
        parts += [entry.raw[:240] for entry in run.entries if entry.sent]
    text = "\n".join(parts)
    return text if len(text) <= SENT_CHARS else text[:SENT_CHARS] + "…"


def find_version(logs: Collection[ScenarioLog]) -> str:
    """The version that the engine gives in system/init."""
    for log in logs:
        for line in log.all("system/init"):
            if isinstance(line.get("claude_code_version"), str):
                return str(line["claude_code_version"])
    return ""


def missing_behaviours(checks: Sequence[EngineCheck], excused: Collection[str]) -> list[str]:
    """The required behaviours that no check covers and that have no reason to be left out."""
    covered = {row for check in checks for row in check.rows}
    rows = read_behaviours().values()
    return [row.id for row in rows if row.priority in ("P0", "P1") and row.id not in covered and row.id not in excused]


def is_gateway(word: str) -> bool:
    return word.startswith(("http://", "https://"))


def gateway_command(url: str) -> tuple[str, ...]:
    return (sys.executable, "-P", "-m", "parley.conformance.gateway_bridge", url)


def gateway_plan(plan: SuitePlan) -> SuitePlan:
    """The plan for a gateway: its scenarios, and the token for the bridge."""
    token = os.environ.get(TOKEN)
    return msgspec.structs.replace(plan, is_gateway=True, env={TOKEN: token} if token else {})
