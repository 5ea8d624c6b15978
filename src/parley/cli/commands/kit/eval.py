"""`parley eval`: run cases against agents, and compare results.

parley eval FILE                       run all cases, print the pass rates
parley eval FILE --resume              run what an interrupted run has not finished
parley eval --compare BEFORE AFTER     compare two results
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from parley.cli.commands.subcommand import GivenArgs, choose_style, terminal_width, write_result
from parley.cli.signals import run_until_signal
from parley.cli.stdio import warn
from parley.errors import InvalidArguments, UsageError
from parley.evals.results import (
    FILE_NAME,
    ResultsFolder,
    ResultsHeader,
    RunRecord,
    create_results,
    read_results,
    resume_results,
)
from parley.evals.runner import EvalRunner
from parley.evals.statistics import Interval, PassRate, RateChange, compare_results, summarize_by
from parley.evals.suite import EvalBudget, EvalSuite, digest_suite, plan_runs, read_suite
from parley.protocol.base import Json
from parley.sdk.batch import ProgressBar
from parley.terminal.rendering.text import format_table
from parley.version import __version__

RESULTS = "eval-results"
FAILED, INVALID, OUT_OF_BUDGET, INTERRUPTED = 1, 2, 3, 130
MAX_USD = 1_000_000
MAX_LISTED = 20
RATE_TITLES = ("configuration", "passed", "rate", "95 % interval", "errors", "turns", "seconds", "cost")


def evaluate(given: GivenArgs) -> int:
    try:
        if given.has("compare"):
            return compare(given)
        if len(given.words) > 1:
            raise InvalidArguments(f"unexpected argument {given.words[1]!r} (two results need --compare)")
        path = Path(given.words[0])
        suite = read_suite(path)
        planned = plan_runs(
            suite,
            runs=given.number("runs", suite.runs, 1),
            cases=given.all("case"),
            configurations=given.all("configuration"),
        )
        suite = msgspec.structs.replace(suite, budget=choose_budget(given, suite.budget))
        minimum = given.decimal("min-pass-rate", suite.min_pass_rate, 1)
        if suite.judge is None and (cases := [case.name for case in suite.case if case.expect.rubric is not None]):
            warn(
                f"warning: there is no [judge] in {path}; the rubrics of these cases are not judged: {', '.join(cases)}"
            )
        concurrency = given.number("concurrency", suite.concurrency, 1)
        results = open_results(given, path, suite)
        try:
            progress = RunsBar(len(planned), {each.key for each in planned}, results)
            runner = EvalRunner(suite, results, on_result=progress.add, keep_failed=given.has("keep-failed"))
            was_interrupted = asyncio.run(run_until_signal(runner.run(planned, concurrency))) != 0
            progress.finish()
        finally:
            results.close()
        records = [results.records[each.key] for each in planned if each.key in results.records]
        ended = [record for record in records if record.outcome != "stopped"]
        rates = summarize_by("configuration", ended)
        missing = len(planned) - len(ended)
        code = choose_code(rates, minimum, missing, was_interrupted)
        if missing:
            reason = "interrupted" if was_interrupted else runner.budget.reason
            warn(f"{missing} of {len(planned)} runs have no result: {reason}; continue with --resume")
        found = to_json(path, results.folder, records, missing)
        return write_result(given, found, format_report(results.folder, rates, records), code)
    except InvalidArguments:
        raise
    except UsageError as exc:
        warn(f"Error: {exc}")
        return INVALID


# Running.


def choose_budget(given: GivenArgs, budget: EvalBudget) -> EvalBudget:
    usd = given.decimal("budget-usd", 0, MAX_USD) if given.has("budget-usd") else budget.usd
    turns = given.number("budget-turns", 0, 1) if given.has("budget-turns") else budget.turns
    return EvalBudget(usd=usd, turns=turns)


def open_results(given: GivenArgs, path: Path, suite: EvalSuite) -> ResultsFolder:
    """Raises UsageError."""
    digest = digest_suite(suite)
    # The highest number of the results of this suite; 0 if there are none.
    pattern = re.compile(re.escape(path.stem) + r"-(\d+)")
    names = os.listdir(RESULTS) if os.path.isdir(RESULTS) else []
    latest = max((int(found[1]) for name in names if (found := pattern.fullmatch(name))), default=0)
    if given.has("resume"):
        folder = Path(given.one("results")) if given.has("results") else results_path(path, latest)
        if not (folder / FILE_NAME).exists():
            raise UsageError(f"there is nothing to resume in {folder}; run without --resume first")
        return resume_results(folder, digest)
    folder = Path(given.one("results")) if given.has("results") else results_path(path, latest + 1)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    header = ResultsHeader(suite=str(path.absolute()), digest=digest, started_at=started, by=f"parley {__version__}")
    return create_results(folder, header)


def results_path(path: Path, number: int) -> Path:
    return Path(RESULTS, f"{path.stem}-{number}")


class RunsBar:
    """Shows how far the runs are, on stderr if that is a terminal."""

    def __init__(self, total: int, keys: set[tuple[str, str, int]], results: ResultsFolder) -> None:
        self._bar = ProgressBar(total, is_shown=os.isatty(2))
        ended = [one for key, one in results.records.items() if key in keys and one.outcome != "stopped"]
        self._passed = sum(one.outcome == "passed" for one in ended)
        self._failed = len(ended) - self._passed
        self._cost_usd = sum(one.cost_usd or 0 for one in results.records.values())
        self._draw()

    def add(self, record: RunRecord) -> None:
        if record.outcome != "stopped":
            self._passed += record.outcome == "passed"
            self._failed += record.outcome != "passed"
        self._cost_usd += record.cost_usd or 0
        self._draw()

    def finish(self) -> None:
        self._bar.finish()

    def _draw(self) -> None:
        cost = f", ${self._cost_usd:.2f}" if self._cost_usd else ""
        self._bar.draw(self._passed + self._failed, f"{self._passed} passed, {self._failed} failed{cost}")


def choose_code(rates: Sequence[PassRate], minimum: float, missing: int, was_interrupted: bool) -> int:
    if was_interrupted:
        return INTERRUPTED
    if missing:
        return OUT_OF_BUDGET
    return FAILED if any(rate.rate < minimum for rate in rates) else 0


# Reporting.


def to_json(path: Path, folder: Path, records: Sequence[RunRecord], missing: int) -> Json:
    ended = [record for record in records if record.outcome != "stopped"]
    return {
        "suite": str(path),
        "results": str(folder),
        "missing": missing,
        "configurations": summarize_by("configuration", ended),
        "cases": summarize_by("case", ended),
        "runs": [msgspec.to_builtins(record) for record in records],
    }


def format_report(folder: Path, rates: Sequence[PassRate], records: Sequence[RunRecord]) -> list[str]:
    style, width = choose_style(), terminal_width(200)
    right = [title for title in RATE_TITLES if title not in ("configuration", "95 % interval")]
    lines = format_table(RATE_TITLES, [format_rate(rate) for rate in rates], right=right, width=width)
    failed = [record for record in records if record.outcome in ("failed", "error")]
    if failed:
        lines += ["", style.bad(f"{len(failed)} {'run' if len(failed) == 1 else 'runs'} did not pass:")]
    for record in failed[:MAX_LISTED]:
        lines.append(f"  {record.case} [{record.configuration}] run {record.run}")
        lines += [f"    {line}" for reason in record.reasons for line in reason.splitlines() or [""]]
        if record.denied:
            lines.append(f"    denied tools: {', '.join(dict.fromkeys(record.denied))} (see allowed_tools)")
        lines.append(f"    {folder / record.recording}.wire.jsonl")
    if len(failed) > MAX_LISTED:
        lines.append(f"  and {len(failed) - MAX_LISTED} more, in {folder / FILE_NAME}")
    return [*lines, "", f"results: {folder}"]


def format_rate(rate: PassRate) -> tuple[str, ...]:
    return (
        rate.name,
        f"{rate.passed}/{rate.total}",
        f"{rate.rate:.0%}",
        format_interval(rate.interval),
        str(rate.errors),
        f"{rate.turns:.1f}",
        f"{rate.seconds:.1f}",
        "unknown" if rate.cost_usd is None else f"${rate.cost_usd:.4f}",
    )


def format_interval(interval: Interval) -> str:
    return f"{interval.low:.0%} to {interval.high:.0%}"


# Comparing.


def compare(given: GivenArgs) -> int:
    if len(given.words) != 2:
        raise InvalidArguments("--compare needs two results: parley eval --compare BEFORE AFTER")
    before, after = (list(read_results(Path(word))[1].values()) for word in given.words)
    found = compare_results(before, after)
    titles = ("configuration", "before", "after", "change", "95 % interval", "")
    lines = format_table(titles, [format_change(change) for change in found.configurations])
    changed = [change for change in found.cases if change.difference]
    if changed:
        table = format_table(("case", *titles[1:]), [format_change(change) for change in changed])
        lines += ["", *table]
    for title, names in (("before", found.only_before), ("after", found.only_after)):
        if names:
            lines += ["", f"only {title}: {', '.join(names)}"]
    return write_result(given, found, lines)


def format_change(change: RateChange) -> tuple[str, ...]:
    before, after = (f"{rate.passed}/{rate.total} {rate.rate:.0%}" for rate in (change.before, change.after))
    word = "" if not change.is_significant else "better" if change.difference > 0 else "worse"
    interval = f"{change.interval.low:+.0%} to {change.interval.high:+.0%}"
    return change.name, before, after, f"{change.difference:+.0%}", interval, word
