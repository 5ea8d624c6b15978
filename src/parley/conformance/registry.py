"""Scenarios and checks. A scenario does something to an engine; a check judges the log of a scenario.

    @scenario(
        "deny",
        check("permission.deny ask.can_use_tool", "trace 033", "a denied command does not run; the turn continues",
              not_made("x.txt"), tool_fails("toolu_touch", "Not on a Tuesday"), ends_with(result="ok")),
    )
    async def deny(engine: EngineDriver) -> None: ...

The ids of a check are its own, then those of the behaviours that it covers (`behaviours.tsv`). A check whose id is that
of a behaviour covers it. Its conditions are those of `conditions.py`, or functions of the log. A check fails by raising
`Mismatch`; any other error in it is a failure too, with the error as its text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from importlib.resources import files

from parley.conformance.conditions import Condition, all_lines
from parley.conformance.driver import EngineDriver
from parley.conformance.scenario_log import ScenarioLog
from parley.protocol.base import Struct

Play = Callable[[EngineDriver], Awaitable[None]]

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
    "flag.api-key": "only seed 001 has it: a key on the command line is visible to other processes",
}
"""Required behaviours that no check covers, and why."""


class Behaviour(Struct, frozen=True):
    """A row of the catalogue."""

    id: str
    area: str
    level: str
    priority: str
    """P0, P1, P2, or `-` for a rule that belongs to all of them."""
    summary: str
    source: str
    """The document and section."""


@cache
def read_behaviours() -> dict[str, Behaviour]:
    """All behaviours by id, in the order of the catalogue."""
    lines = files("parley.conformance").joinpath("behaviours.tsv").read_text(encoding="utf-8").splitlines()
    return {row.id: row for line in lines[1:] for row in [Behaviour(*line.split("\t"))]}


class CheckRow(Struct, frozen=True, kw_only=True):
    """What is expected of an engine or a client in one scenario."""

    id: str
    rows: tuple[str, ...]
    scenario: str
    expects: str
    basis: str
    is_advice: bool = False
    """Whether the recorded engine does otherwise, on purpose: reported, and not part of the score."""

    @property
    def behaviour(self) -> Behaviour:
        return read_behaviours()[self.rows[0]]


class BehaviourCheck(CheckRow, frozen=True, kw_only=True):
    """A check of an engine."""

    judge: Condition


SCENARIOS: dict[str, Play] = {}
CHECKS: dict[str, BehaviourCheck] = {}
Row = Callable[[str], BehaviourCheck]
"""A check of a scenario, which is given."""


def scenario(name: str, *rows: Row) -> Callable[[Play], Play]:
    """A scenario and its checks."""

    def add(play: Play) -> Play:
        assert name not in SCENARIOS, name
        SCENARIOS[name] = play
        return play

    checks(name, *rows)
    return add


def checks(on: str, *rows: Row) -> None:
    """Add checks to a scenario."""
    for row in rows:
        new = row(on)
        unknown = [id for id in new.rows if id not in read_behaviours()]
        assert not unknown, f"{new.id} names unknown behaviours: {unknown}"
        assert new.rows, f"{new.id} names no behaviour"
        assert new.id not in CHECKS, f"two checks are called {new.id}"
        CHECKS[new.id] = new


def check(ids: str, basis: str, expects: str, *conditions: Condition, is_advice: bool = False) -> Row:
    """A check: its id and those of the behaviours that it covers, the source, what is expected, and the conditions."""

    def judge(log: ScenarioLog) -> None:
        for condition in conditions:
            condition(log)

    def make(scenario: str) -> BehaviourCheck:
        id, *rows = ids.split()
        return BehaviourCheck(
            id=id,
            rows=(id, *rows) if id in read_behaviours() else tuple(rows),
            scenario=scenario,
            expects=expects,
            basis=basis,
            judge=judge,
            is_advice=is_advice,
        )

    return make


def fields(kind: str, basis: str, rows: dict[str, str]) -> Iterator[Row]:
    """Checks that a line of a kind has a field of a type: `{"result.usage": "usage:o"}`. `?` marks an optional one."""
    for row, field in rows.items():
        path, _, types = field.partition(":")
        named = " or ".join(TYPE_NAMES[letter] for letter in types if letter in TYPE_NAMES)
        expects = f"every line `{kind}` has the field `{path}`: {named}"
        if "?" in types:
            expects = f"the field `{path}` of a line `{kind}`, if there is one, is {named}"
        yield check(row, basis, expects, all_lines(kind, field))
