"""Scenarios and checks. A scenario does something to an engine; a check judges the log of a scenario.

    @scenario("deny")
    async def deny(engine: EngineDriver) -> None: ...

    @check("permissions.deny", "can_use_tool.tool_name", on="deny", expects="the call does not run", basis="trace 033")
    def deny_is_obeyed(log: ScenarioLog) -> None:
        need("x.txt" not in log.files, "the denied command ran")

The ids of a check are its own, then those of the behaviours that it covers. A check whose id is that of a behaviour
covers it. A check fails by raising `Mismatch`; any other error in it is a failure too, with the error as its text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from parley.conformance.behaviours import Behaviour, read_behaviours
from parley.conformance.driver import EngineDriver
from parley.conformance.scenario_log import Mismatch, ScenarioLog, shown
from parley.protocol.base import Json, Struct

Play = Callable[[EngineDriver], Awaitable[None]]
Judge = Callable[[ScenarioLog], None]

TYPES: dict[str, tuple[type, ...]] = {
    "s": (str,), "n": (int, float), "b": (bool,), "o": (dict,), "a": (list,), "0": (type(None),),
}  # fmt: skip
TYPE_NAMES = {"s": "a string", "n": "a number", "b": "a boolean", "o": "an object", "a": "a list", "0": "null"}


class BehaviourCheck(Struct, frozen=True, kw_only=True):
    """What is expected of one scenario."""

    id: str
    rows: tuple[str, ...]
    scenario: str
    expects: str
    basis: str
    judge: Judge
    is_advice: bool = False
    """Whether the recorded engine does otherwise, on purpose: reported, and not part of the score."""

    @property
    def behaviour(self) -> Behaviour:
        return read_behaviours()[self.rows[0]]


SCENARIOS: dict[str, Play] = {}
CHECKS: dict[str, BehaviourCheck] = {}


def scenario(name: str) -> Callable[[Play], Play]:
    def add(play: Play) -> Play:
        assert name not in SCENARIOS, name
        SCENARIOS[name] = play
        return play

    return add


def check(id: str, *rows: str, on: str, expects: str, basis: str, is_advice: bool = False) -> Callable[[Judge], Judge]:
    def add(judge: Judge) -> Judge:
        covered = rows if id not in read_behaviours() else (id, *rows)
        add_check(
            BehaviourCheck(
                id=id, rows=covered, scenario=on, expects=expects, basis=basis, judge=judge, is_advice=is_advice
            )
        )
        return judge

    return add


def add_check(new: BehaviourCheck) -> None:
    unknown = [row for row in new.rows if row not in read_behaviours()]
    assert not unknown, f"{new.id} names unknown behaviours: {unknown}"
    assert new.rows, f"{new.id} names no behaviour"
    assert new.id not in CHECKS, f"two checks are called {new.id}"
    CHECKS[new.id] = new


def fields(on: str, kind: str, basis: str, rows: dict[str, str]) -> None:
    """Checks that a line of a kind has a field of a type: `{"result.usage": "usage:o"}`. `?` marks an optional one."""
    for row, field in rows.items():
        path, _, types = field.partition(":")
        named = " or ".join(TYPE_NAMES[letter] for letter in types if letter in TYPE_NAMES)
        add_check(
            BehaviourCheck(
                id=row,
                rows=(row,),
                scenario=on,
                expects=f"every line `{kind}` has the field `{path}`: {named}"
                if "?" not in types
                else f"the field `{path}` of a line `{kind}`, if there is one, is {named}",
                basis=basis,
                judge=field_judge(kind, path, types),
            )
        )


def field_judge(kind: str, path: str, types: str) -> Judge:
    def judge(log: ScenarioLog) -> None:
        log.first(kind)
        for line in log.all(kind):
            require_field(line, path, types)

    return judge


def require_field(value: Json, path: str, types: str) -> Any:
    """The value at a path, of one of the types. Raises Mismatch."""
    found: Any = value
    for name in path.split("."):
        if not isinstance(found, dict) or name not in found:
            if "?" in types:
                return None
            raise Mismatch(f"`{path}` is missing: {shown(value)}")
        found = found[name]
    wanted = tuple(each for letter in types if letter != "?" for each in TYPES[letter])
    if not isinstance(found, wanted) or (isinstance(found, bool) and bool not in wanted):
        raise Mismatch(f"`{path}` is {shown(found)}")
    return found
