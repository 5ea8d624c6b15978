"""Run the planned runs of a suite, several at the same time in one process, within a budget.

A run that fails in any way is recorded and the next one starts. When the budget is spent, no further run starts; those
that are left have no result, and `--resume` runs them.
"""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from parley.evals.checks import check_agent, judge_run, run_command, shorten
from parley.evals.results import RECORDINGS, EvalCheckResult, Outcome, ResultsFolder, RunRecord
from parley.evals.session import EvalRun, make_options, prepare_workspace, run_agent, share_budget
from parley.evals.suite import EvalSuite, PlannedRun
from parley.sdk.budget import Budget
from parley.sdk.errors import BudgetExceeded
from parley.workspace.process.processes import Processes

RESULT_CHARS = 2_000
KEPT = "failed-workspaces"
COLLECT_RUNS = 20
"""A session leaves cycles. Python would collect them so late that memory grows for hundreds of runs."""
NO_JUDGE = "there is no [judge]"


class SharedBudget:
    """What all runs together may use, in dollars and in model calls."""

    def __init__(self, suite: EvalSuite, records: Sequence[RunRecord]) -> None:
        self._turns = suite.budget.turns
        self._used_turns = sum(record.turns for record in records)
        self.usd = None if suite.budget.usd is None else Budget(usd=suite.budget.usd)
        self.reason = ""
        """Why no further run starts; "" while the budget is not spent."""
        if self.usd is not None:
            for record in records:
                self.usd.add(record.cost_usd if record.turns else 0.0, 0)
                self.usd.add(record.judge_cost_usd or 0.0, 0)

    @property
    def turns_left(self) -> int | None:
        return None if self._turns is None else self._turns - self._used_turns

    def add_turns(self, turns: int) -> None:
        self._used_turns += turns

    def is_spent(self) -> bool:
        """Whether no further run may start."""
        if not self.reason and self._turns is not None and self._used_turns >= self._turns:
            self.reason = f"the budget of {self._turns} turns is spent ({self._used_turns})"
        try:
            if not self.reason and self.usd is not None:
                self.usd.check()
        except BudgetExceeded as exc:
            self.reason = str(exc)
        return bool(self.reason)


class EvalRunner:
    """Runs what is planned and appends the results."""

    def __init__(
        self,
        suite: EvalSuite,
        results: ResultsFolder,
        *,
        on_result: Callable[[RunRecord], object] = lambda record: None,
        keep_failed: bool = False,
    ) -> None:
        """`keep_failed`: move the workspaces of runs that do not pass to the results."""
        self._suite = suite
        self._results = results
        self._on_result = on_result
        self._keep_failed = keep_failed
        self.budget = SharedBudget(suite, list(results.records.values()))
        self._processes = Processes()

    async def run(self, planned: Sequence[PlannedRun], concurrency: int) -> None:
        """Run what has no result yet. Cancelling ends all sessions and commands. Raises OSError if the disk is full."""
        done = {record.key for record in self._results.records.values() if record.outcome != "stopped"}
        waiting = iter([each for each in planned if each.key not in done])

        async def work() -> None:
            for each in waiting:
                if self.budget.is_spent():
                    return
                await self._run_and_record(each)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(work())
        finally:
            await self._processes.close()

    async def _run_and_record(self, planned: PlannedRun) -> None:
        folder = self._results.workspaces / planned.file_name
        try:
            record = await self._run_one(planned, folder)
            if record is not None:
                self._results.append(record)
                if len(self._results.records) % COLLECT_RUNS == 0:
                    gc.collect()
                self._on_result(record)
                if self._keep_failed and record.outcome != "passed":
                    await asyncio.to_thread(self._keep_workspace, folder / "workspace", planned)
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _keep_workspace(self, workspace: Path, planned: PlannedRun) -> None:
        kept = self._results.folder / KEPT / planned.file_name
        if workspace.is_dir():
            shutil.copytree(workspace, kept, symlinks=True, dirs_exist_ok=True)

    async def _run_one(self, planned: PlannedRun, folder: Path) -> RunRecord | None:
        """None if the budget did not allow it to start."""
        recording = self._results.folder.absolute() / RECORDINGS / planned.file_name
        try:
            workspace = await asyncio.to_thread(prepare_workspace, folder, planned.case)
            options = make_options(planned, folder, workspace, recording)
        except OSError as exc:
            return make_record(planned, EvalRun(error=f"cannot prepare the workspace: {exc}"), [], recording)
        share_budget(options, self.budget.usd, self.budget.turns_left)
        try:
            agent = await run_agent(planned, options, recording)
        except BudgetExceeded:
            return None
        self.budget.add_turns(agent.turns)
        if agent.error:
            is_stopped = agent.is_out_of_budget and self.budget.is_spent()
            return make_record(planned, agent, [], recording, is_stopped=is_stopped)
        checks = await asyncio.to_thread(check_agent, planned.case.expect, agent, workspace)
        for command in planned.case.expect.list_commands():
            environment = {**os.environ, **planned.configuration.env}
            checks.append(await run_command(command, workspace, self._processes, environment))
        try:
            judged_usd = await self._judge(planned, agent, workspace, checks)
        except BudgetExceeded:
            return make_record(planned, agent, checks, recording, is_stopped=True)
        return make_record(planned, agent, checks, recording, judged_usd=judged_usd)

    async def _judge(
        self, planned: PlannedRun, agent: EvalRun, workspace: Path, checks: list[EvalCheckResult]
    ) -> float | None:
        """Add the verdict, unless another check has failed. Returns what it cost. Raises BudgetExceeded."""
        if planned.case.expect.rubric is None:
            return None
        if self._suite.judge is not None and all(check.passed for check in checks):
            check, cost = await judge_run(self._suite.judge, planned.case, agent, workspace, self.budget.usd)
            checks.append(check)
            return cost
        reason = NO_JUDGE if self._suite.judge is None else "another check has failed"
        checks.append(EvalCheckResult(check="rubric", passed=None, detail=f"not judged: {reason}"))
        return None


def make_record(
    planned: PlannedRun,
    agent: EvalRun,
    checks: list[EvalCheckResult],
    recording: Path,
    *,
    is_stopped: bool = False,
    judged_usd: float | None = None,
) -> RunRecord:
    case, configuration, number = planned.key
    return RunRecord(
        case=case,
        configuration=configuration,
        run=number,
        outcome="stopped" if is_stopped else decide_outcome(agent, checks),
        checks=checks,
        error=agent.error,
        result=shorten(agent.text, RESULT_CHARS),
        tools=dict(agent.tools),
        denied=agent.denied,
        warnings=agent.warnings,
        turns=agent.turns,
        cost_usd=agent.cost_usd,
        judge_cost_usd=judged_usd,
        seconds=agent.seconds,
        session_id=agent.session_id,
        recording=f"{RECORDINGS}/{recording.name}",
    )


def decide_outcome(agent: EvalRun, checks: Sequence[EvalCheckResult]) -> Outcome:
    """A rubric without a verdict is an error, unless there is no judge at all."""
    if agent.error:
        return "error"
    if any(check.passed is False for check in checks):
        return "failed"
    unjudged = any(check.passed is None and NO_JUDGE not in check.detail for check in checks)
    return "error" if unjudged else "passed"
