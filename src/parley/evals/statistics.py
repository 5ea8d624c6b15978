"""Pass rates with confidence intervals, and the difference between two results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt

from msgspec.structs import replace

from parley.evals.results import RunRecord
from parley.protocol.base import Struct

Z = 1.959963984540054
"""Of a confidence of 95 %."""


class Interval(Struct, frozen=True):
    """A range that contains the true value with a confidence of 95 %."""

    low: float
    high: float


def wilson(passed: int, total: int) -> Interval:
    """The Wilson score interval of a pass rate. Without a run, everything is possible."""
    if total == 0:
        return Interval(0.0, 1.0)
    rate, z2 = passed / total, Z * Z
    center = (rate + z2 / (2 * total)) / (1 + z2 / total)
    margin = Z * sqrt(rate * (1 - rate) / total + z2 / (4 * total * total)) / (1 + z2 / total)
    # At the ends, rounding would leave an interval without its own rate.
    return Interval(0.0 if passed == 0 else center - margin, 1.0 if passed == total else center + margin)


class PassRate(Struct, frozen=True, kw_only=True):
    """How many runs of a case, a configuration or both passed, and what they took."""

    name: str
    passed: int
    total: int
    errors: int
    """How many of the others ended with an error of the session."""
    rate: float
    interval: Interval
    turns: float
    """Model calls of a run, on average."""
    seconds: float
    cost_usd: float | None
    """Of all runs; None if a price is not known."""


def summarize(name: str, records: Iterable[RunRecord]) -> PassRate:
    ended = [record for record in records if record.outcome != "stopped"]
    passed, total = sum(record.outcome == "passed" for record in ended), len(ended)
    costs = [record.cost_usd for record in ended]
    return PassRate(
        name=name,
        passed=passed,
        total=total,
        errors=sum(record.outcome == "error" for record in ended),
        rate=passed / total if total else 0.0,
        interval=wilson(passed, total),
        turns=sum(record.turns for record in ended) / total if total else 0.0,
        seconds=sum(record.seconds for record in ended) / total if total else 0.0,
        cost_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
    )


def summarize_by(key: str, records: Sequence[RunRecord]) -> list[PassRate]:
    """One rate for each `case` or `configuration`, in the order of their first runs."""
    names = dict.fromkeys(getattr(record, key) for record in records)
    return [summarize(name, (one for one in records if getattr(one, key) == name)) for name in names]


class RateChange(Struct, frozen=True, kw_only=True):
    """A pass rate before and after."""

    name: str
    before: PassRate
    after: PassRate
    difference: float
    interval: Interval

    @property
    def is_significant(self) -> bool:
        """Whether the interval of the difference does not contain 0."""
        return self.interval.low > 0 or self.interval.high < 0


def compare_rates(name: str, before: PassRate, after: PassRate) -> RateChange:
    """The difference of two rates, with Newcombe's interval."""
    old, new = before.interval, after.interval
    difference = after.rate - before.rate
    low = difference - sqrt((after.rate - new.low) ** 2 + (old.high - before.rate) ** 2)
    high = difference + sqrt((new.high - after.rate) ** 2 + (before.rate - old.low) ** 2)
    return RateChange(
        name=name, before=before, after=after, difference=difference, interval=Interval(max(-1.0, low), min(1.0, high))
    )


class Comparison(Struct, frozen=True, kw_only=True):
    """Two results, by what both contain."""

    configurations: list[RateChange]
    cases: list[RateChange]
    only_before: list[str]
    """Runs that only one of them contains, as `case [configuration]`."""
    only_after: list[str]


def compare_results(before: Sequence[RunRecord], after: Sequence[RunRecord]) -> Comparison:
    """Compare the cases and configurations that both have. If each has one configuration, its name does not count."""
    if len(names := {record.configuration for record in before}) == 1:
        others = {record.configuration for record in after}
        if len(others) == 1 and others != names:
            label = f"{names.pop()} → {others.pop()}"
            before, after = (
                [replace(record, configuration=label) for record in records] for records in (before, after)
            )
    old, new = ({(one.case, one.configuration) for one in records} for records in (before, after))
    shared = old & new
    kept = [[one for one in records if (one.case, one.configuration) in shared] for records in (before, after)]

    def compare_by(key: str) -> list[RateChange]:
        rates = {rate.name: rate for rate in summarize_by(key, kept[1])}
        # By name: the lines of a results file are in the order in which the runs ended.
        old_rates = sorted(summarize_by(key, kept[0]), key=lambda rate: rate.name)
        return [compare_rates(rate.name, rate, rates[rate.name]) for rate in old_rates]

    return Comparison(
        configurations=compare_by("configuration"),
        cases=compare_by("case"),
        only_before=sorted("{} [{}]".format(*each) for each in old - new),
        only_after=sorted("{} [{}]".format(*each) for each in new - old),
    )
