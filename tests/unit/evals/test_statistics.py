"""Pass rates, their intervals, and comparisons."""

from __future__ import annotations

import pytest

from parley.evals.results import Outcome, RunRecord
from parley.evals.statistics import compare_rates, compare_results, summarize, summarize_by, wilson


def record(
    case: str, outcome: Outcome, *, configuration: str = "c", run: int = 1, cost: float | None = 0.5
) -> RunRecord:
    return RunRecord(case=case, configuration=configuration, run=run, outcome=outcome, turns=2, cost_usd=cost)


@pytest.mark.parametrize(
    ("passed", "total", "low", "high"),
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (45, 50, 0.7864, 0.9565), (0, 0, 0.0, 1.0)],
)
def test_the_interval_is_that_of_wilson(passed: int, total: int, low: float, high: float) -> None:
    found = wilson(passed, total)

    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)


def test_errors_count_as_runs_that_did_not_pass_and_stopped_ones_do_not_count() -> None:
    found = summarize("all", [record("a", "passed"), record("a", "error"), record("b", "stopped")])

    assert (found.passed, found.total, found.errors, found.rate, found.cost_usd) == (1, 2, 1, 0.5, 1.0)
    assert summarize("none", [record("a", "passed", cost=None)]).cost_usd is None


def test_the_interval_of_a_difference_is_that_of_newcombe() -> None:
    # Newcombe (1998), table II, example (a): 56/70 and 48/80.
    before = summarize("x", [record("a", "passed" if at < 48 else "failed", run=at) for at in range(80)])
    after = summarize("x", [record("a", "passed" if at < 56 else "failed", run=at) for at in range(70)])
    found = compare_rates("x", before, after)

    assert (found.interval.low, found.interval.high) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert found.is_significant


def test_a_comparison_counts_what_both_have_and_names_the_rest() -> None:
    before = [record("a", "passed"), record("b", "passed"), record("old", "passed")]
    after = [record("a", "passed"), record("b", "failed"), record("new", "passed")]
    found = compare_results(before, after)

    assert [(each.name, each.difference) for each in found.cases] == [("a", 0.0), ("b", -1.0)]
    assert [(each.name, each.difference) for each in found.configurations] == [("c", -0.5)]
    assert (found.only_before, found.only_after) == (["old [c]"], ["new [c]"])


def test_two_results_with_one_configuration_each_are_compared_whatever_its_name_is() -> None:
    found = compare_results([record("a", "failed")], [record("a", "passed", configuration="d")])

    assert [(each.name, each.difference) for each in found.configurations] == [("c → d", 1.0)]
    assert [rate.name for rate in summarize_by("case", [record("b", "passed"), record("a", "passed")])] == ["b", "a"]
