"""The suite for engines: the behaviours (`behaviours.tsv`), and the scenarios and checks (`scenarios/*.toml`).

    suite = read_suite()
    suite.scenarios["deny"].steps
    judge_needs(suite.checks["permission.deny"], log)           # raises Mismatch

A scenario does something to an engine; a check judges the log of it. A check fails by raising `Mismatch`; any other
error in it is a failure too, with the error as its text. The format of the files is in `scenario.py`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

import msgspec

from parley.conformance import conditions, invariants, judges
from parley.conformance.scenario import ConformanceFile, ConformanceScenario, EngineCheck, Entry, FieldEntries, call
from parley.conformance.scenario_log import ScenarioLog
from parley.protocol.base import Struct

THEMES = (
    "basics", "invariants", "command_line", "tools", "control", "interrupts", "permissions", "hooks", "mcp", "sessions",
    "dialects", "complaints",
)  # fmt: skip

CONDITIONS = {**vars(conditions), **vars(judges), **vars(invariants)}
LEVELS = ("core", "control", "sessions", "dialects")
REQUIRED = ("P0", "P1")
EVERY = "*"
"""The scenario of an invariant: all of them."""
TYPE_NAMES = {"s": "a string", "n": "a number", "b": "a boolean", "o": "an object", "a": "a list", "0": "null"}
EXCUSED = {
    "out.rate_limit_event": "it follows headers that only subscription tokens get, which a suite must not use",
    "top.rate_limit_event": "it follows headers that only subscription tokens get, which a suite must not use",
    "out.system/consolidation_C": "when a memory is consolidated is not specified, and cannot be caused from outside",
    "system.consolidation_C": "when a memory is consolidated is not specified, and cannot be caused from outside",
    "out.system/mirror_error": "SDKs make it; an engine never sends it",
    "system.mirror_error": "SDKs make it; an engine never sends it",
    "block.advisor_tool_result": "a tool of the vendor's server; a scripted model cannot run it",
    "hook.Notification": "when an engine notifies is not specified, and no recording has it",
    "flag.api-key": "only one of the dialects has it: a key on the command line is visible to other processes",
}
"""Required behaviours that no check covers, and why."""


class Suite(Struct, frozen=True):
    scenarios: dict[str, ConformanceScenario]
    checks: dict[str, EngineCheck]


@cache
def read_suite() -> Suite:
    """All scenarios and checks, in their order."""
    scenarios: dict[str, ConformanceScenario] = {}
    checks: dict[str, EngineCheck] = {}
    folder = files("parley.conformance") / "scenarios"
    for theme in THEMES:
        text = (folder / f"{theme}.toml").read_text(encoding="utf-8")
        for scenario in msgspec.convert(tomllib.loads(text), ConformanceFile).scenario:
            if scenario.name != EVERY:
                scenarios[scenario.name] = scenario
            for check in list_checks(scenario):
                assert check.id not in checks, f"two checks are called {check.id}"
                checks[check.id] = check
    return Suite(scenarios, checks)


def list_checks(scenario: ConformanceScenario) -> Iterator[EngineCheck]:
    for fields in scenario.fields:
        for row, field in fields.rows.items():
            needed: list[Entry] = [{"all_lines": [fields.line, field]}]
            expects = describe_field(fields, field)
            yield EngineCheck(id=row, basis=fields.basis, expects=expects, need=needed, scenario=scenario.name)
    for check in scenario.check:
        yield msgspec.structs.replace(check, scenario=scenario.name)


def describe_field(fields: FieldEntries, field: str) -> str:
    path, _, types = field.partition(":")
    named = " or ".join(TYPE_NAMES[letter] for letter in types if letter in TYPE_NAMES)
    if "?" in types:
        return f"the field `{path}` of a line `{fields.line}`, if there is one, is {named}"
    return f"every line `{fields.line}` has the field `{path}`: {named}"


def judge_needs(check: EngineCheck, log: ScenarioLog) -> None:
    """Raises Mismatch."""
    for need in check.need:
        call(need, CONDITIONS, log)
