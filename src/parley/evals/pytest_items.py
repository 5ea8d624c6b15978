"""The cases of a file of `parley eval` as pytest tests: one test for each case and configuration.

    pytest -p parley.testing.plugin --parley-evals notes.toml

A test makes all runs of its case with its configuration, and fails if fewer than `min_pass_rate` pass.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from parley.errors import UsageError
from parley.evals.results import ResultsFolder, ResultsHeader, RunRecord, create_results
from parley.evals.runner import EvalRunner
from parley.evals.suite import EvalSuite, PlannedRun, digest_suite, plan_runs, read_suite, slug
from parley.version import __version__

if TYPE_CHECKING:
    from _pytest._code.code import TerminalRepr

RESULTS = "--parley-eval-results"


class EvalFile(pytest.File):
    """A file with cases."""

    def collect(self) -> Iterator[pytest.Item]:
        try:
            suite = read_suite(self.path)
        except UsageError as exc:
            raise self.CollectError(str(exc)) from None
        tests: dict[tuple[str, str], list[PlannedRun]] = {}
        for planned in plan_runs(suite):
            tests.setdefault(planned.key[:2], []).append(planned)
        for (case, configuration), runs in tests.items():
            yield EvalItem.from_parent(self, name=f"{case}[{configuration}]", suite=suite, runs=runs)


class EvalItem(pytest.Item):
    """The runs of one case with one configuration."""

    def __init__(self, *, suite: EvalSuite, runs: list[PlannedRun], **given: Any) -> None:
        super().__init__(**given)
        self._suite = suite
        self._runs = runs

    def runtest(self) -> None:
        with tempfile.TemporaryDirectory() as temporary:
            folder = self.config.getoption(RESULTS) or temporary
            results = self._open_results(Path(folder))
            try:
                asyncio.run(EvalRunner(self._suite, results).run(self._runs, self._suite.concurrency))
            finally:
                results.close()
        records = [results.records[run.key] for run in self._runs if run.key in results.records]
        passed = sum(record.outcome == "passed" for record in records)
        if len(records) < len(self._runs) or passed < self._suite.min_pass_rate * len(self._runs):
            raise EvalFailed(passed, len(self._runs), records)

    def _open_results(self, folder: Path) -> ResultsFolder:
        """A folder for each test, so that tests can run in several processes."""
        header = ResultsHeader(
            suite=str(self.path), digest=digest_suite(self._suite), by=f"parley {__version__} (pytest)"
        )
        return create_results(folder / f"{self.path.stem}.{slug(self.name)}", header)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str | TerminalRepr:
        if isinstance(excinfo.value, EvalFailed | UsageError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


class EvalFailed(Exception):
    """Too few runs passed."""

    def __init__(self, passed: int, total: int, records: list[RunRecord]) -> None:
        reasons = [
            f"run {record.run}: {reason}"
            for record in records
            if record.outcome != "passed"
            for reason in record.reasons or [record.outcome]
        ]
        missing = [f"{total - len(records)} runs did not start: the budget is spent"] if len(records) < total else []
        super().__init__("\n".join([f"{passed} of {total} runs passed", *reasons, *missing]))
