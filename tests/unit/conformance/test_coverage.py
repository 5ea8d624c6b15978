"""Behaviours and checks: every required row has a check or a reason, every check names rows."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest

from parley.conformance.client import read_client_checks
from parley.conformance.driver import STEPS, TURNS
from parley.conformance.registry import CONDITIONS, EVERY, EXCUSED, LEVELS, REQUIRED, read_suite
from parley.conformance.runner import SuitePlan, missing_behaviours, select_checks, select_scenarios
from parley.conformance.scenario import Entry, read_behaviours
from tests.helpers import paths

CHECKS, SCENARIOS = read_suite().checks, read_suite().scenarios


def table_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("behaviours_table", paths.ROOT / "scripts" / "behaviours_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_required_behaviour_has_a_check_or_a_reason() -> None:
    assert missing_behaviours(list(CHECKS.values()), EXCUSED) == []


def test_a_reason_is_given_only_for_a_required_behaviour_without_a_check() -> None:
    covered = {row for check in CHECKS.values() for row in check.rows}
    rows = read_behaviours()
    assert [row for row in EXCUSED if rows[row].priority not in REQUIRED or row in covered] == []


def test_every_check_names_behaviours_that_exist_and_a_scenario() -> None:
    known = read_behaviours()
    named = [(check.id, check.rows, check.expects, check.basis) for check in CHECKS.values()]
    named += [(check.id, check.rows, check.expects, check.basis) for check in read_client_checks()]
    for id, rows, expects, basis in named:
        assert rows, id
        assert set(rows) <= set(known), id
        assert expects, id
        assert basis, id
    assert {check.scenario for check in CHECKS.values()} <= {EVERY, *SCENARIOS}


def test_every_scenario_is_judged() -> None:
    assert set(SCENARIOS) == {check.scenario for check in CHECKS.values()} - {EVERY}


def test_every_step_turn_and_need_names_a_function() -> None:
    suite = read_suite()
    steps = [step for scenario in suite.scenarios.values() for step in scenario.steps]
    turns = [turn for scenario in suite.scenarios.values() for turn in scenario.model]
    assert {name_of(step) for step in steps} <= STEPS.keys()
    assert {name_of(turn) for turn in turns} <= TURNS.keys()
    assert {name_of(need) for check in suite.checks.values() for need in check.need} <= CONDITIONS.keys()


def name_of(entry: Entry) -> str:
    return entry if isinstance(entry, str) else next(iter(entry))


def test_every_behaviour_has_a_level() -> None:
    assert {row.level for row in read_behaviours().values()} == set(LEVELS)


def test_the_table_is_that_of_the_catalogue() -> None:
    module = table_script()
    if not module.CATALOGUE.is_dir():
        pytest.skip("the catalogue of the protocol is not part of a checkout")
    assert module.TABLE.read_text(encoding="utf-8") == module.render(module.CATALOGUE)


def test_checks_are_chosen_by_level_and_by_id_behaviour_or_scenario() -> None:
    assert {check.behaviour.level for check in select_checks(SuitePlan(levels=("sessions",)))} == {"sessions"}
    complaints = select_checks(SuitePlan(suite="complaints"))
    assert complaints
    assert all(check.complaint for check in complaints)
    by_row = select_checks(SuitePlan(only=("flag.fork-session",)))
    assert [check.id for check in by_row] == ["flag.fork-session"]
    by_scenario = select_checks(SuitePlan(only=("sessions",)))
    assert len(by_scenario) == 4
    assert select_scenarios(SuitePlan(), by_scenario) == ["sessions"]
    assert select_scenarios(SuitePlan(), select_checks(SuitePlan(only=("every.uuid",)))) == list(SCENARIOS)
