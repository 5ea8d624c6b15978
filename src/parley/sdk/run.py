"""Whole runs in one call: a prompt, or many prompts at the same time.

    result = await run("What is 2 + 2?", Options(model="sonnet"))
    print(result.text)

    outcomes = await run_many(prompts, options, concurrency=20)

`run_sync` and `run_many_sync` need no event loop. A failed run raises ResultError.

See also: `query.py` for all messages of a run, `client.py` for conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic

from parley.sdk.client import Client
from parley.sdk.launch.validation import check_types
from parley.sdk.options import Options
from parley.sdk.runtime.prompts import Prompt
from parley.sdk.types.generic import OutputT
from parley.sdk.types.results import RunResult


async def run(prompt: Prompt, options: Options[OutputT] | None = None, *, check: bool = True) -> RunResult[OutputT]:
    """Send one prompt to a new engine and return the result.

        result = await run("What is the capital of France?", Options(model="sonnet"))
        print(result.text, result.cost_usd)

    Raises ResultError if the turn failed, unless `check` is False; what `Client.connect` raises; and
    MessageParseError if there is an `output_type` that the output does not match.
    """
    async with Client(options) as client:
        return await client.run(prompt, check=check)


@dataclass(frozen=True)
class RunOutcome(Generic[OutputT]):
    """What became of one prompt of `run_many`: a result or an error."""

    index: int
    """The position of the prompt."""
    prompt: Prompt
    result: RunResult[OutputT] | None = None
    error: Exception | None = None
    """Why there is no result: ResultError for a failed turn, BudgetExceeded for one that did not start, and others."""

    def unwrap(self) -> RunResult[OutputT]:
        """Return the result, or raise the error."""
        if self.result is None:
            raise self.error or RuntimeError("the outcome has neither a result nor an error")
        return self.result


@dataclass(frozen=True)
class RunProgress(Generic[OutputT]):
    """How far `run_many` is, after one more prompt has ended."""

    done: int
    failed: int
    """How many of these have an error."""
    total: int
    latest: RunOutcome[OutputT]


async def run_many(
    prompts: Iterable[Prompt],
    options: Options[OutputT] | None = None,
    *,
    concurrency: int = 10,
    on_progress: Callable[[RunProgress[OutputT]], object] | None = None,
) -> list[RunOutcome[OutputT]]:
    """Send each prompt to an engine of its own, some at the same time, and return the outcomes in order.

        outcomes = await run_many(prompts, options, concurrency=20, on_progress=lambda p: print(p.done, "of", p.total))
        texts = [outcome.result.text for outcome in outcomes if outcome.result]

    A prompt that fails does not end the others: its outcome has the error. Cancelling the call ends all engines.
    With `Options(budget=...)` all prompts share one budget; those that are left when it is spent have BudgetExceeded.
    `engine="local"` saves a process per prompt. Raises TypeError or ValueError for invalid options, and whatever
    `on_progress` raises.
    """
    from anyio import create_task_group

    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise ValueError(f"concurrency must be a whole number, 1 or more, not {concurrency!r}")
    if isinstance(prompts, str):
        raise TypeError("prompts must be a list of prompts, not one string")
    checked, waiting = check_types(options), list(prompts)
    pending = iter(enumerate(waiting))
    outcomes: dict[int, RunOutcome[OutputT]] = {}
    failed = 0
    error: Exception | None = None

    async def work() -> None:
        nonlocal failed, error
        for index, prompt in pending:
            outcome = outcomes[index] = await run_one(index, prompt, checked)
            failed += outcome.error is not None
            try:
                if on_progress is not None:
                    on_progress(RunProgress(len(outcomes), failed, len(waiting), outcome))
            except Exception as exc:
                error = exc
                group.cancel_scope.cancel()
                return

    async with create_task_group() as group:
        for _ in range(min(concurrency, len(waiting))):
            group.start_soon(work)
    if error is not None:
        raise error
    return [outcomes[index] for index in range(len(waiting))]


async def run_one(index: int, prompt: Prompt, options: Options[OutputT]) -> RunOutcome[OutputT]:
    try:
        return RunOutcome(index, prompt, result=await run(prompt, options))
    except Exception as exc:
        return RunOutcome(index, prompt, error=exc)


def run_sync(prompt: Prompt, options: Options[OutputT] | None = None, *, check: bool = True) -> RunResult[OutputT]:
    """The same as `run`, without async.

        print(run_sync("What is the capital of France?").text)

    It also works where an event loop runs, as in a notebook.
    """
    from parley.sdk.sync import LoopThread

    with LoopThread() as loop:
        return loop.run(run(prompt, options, check=check))


def run_many_sync(
    prompts: Iterable[Prompt],
    options: Options[OutputT] | None = None,
    *,
    concurrency: int = 10,
    on_progress: Callable[[RunProgress[OutputT]], object] | None = None,
) -> list[RunOutcome[OutputT]]:
    """The same as `run_many`, without async. `on_progress` is called in another thread."""
    from parley.sdk.sync import LoopThread

    with LoopThread() as loop:
        return loop.run(run_many(prompts, options, concurrency=concurrency, on_progress=on_progress))
