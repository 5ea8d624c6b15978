"""Run many prompts, some at the same time, with one budget for all.

Prints:
    12 of 12 are done, 1 failed
    the answer to the first: 0 squared is 0.
    the last failed: no such number
    within the budget: True
"""

import asyncio

from parley import Budget, Options, RunProgress, run_many

PROMPTS = [*(f"say {n} squared is {n * n}." for n in range(11)), "fail 400 no such number"]


def show(progress: RunProgress) -> None:
    if progress.done == progress.total:
        print(f"{progress.done} of {progress.total} are done, {progress.failed} failed")


async def main() -> None:
    budget = Budget(tokens=100_000)  # or usd=5.00
    options = Options(model="offline", engine="local", budget=budget)
    outcomes = await run_many(PROMPTS, options, concurrency=4, on_progress=show)
    print("the answer to the first:", outcomes[0].unwrap().text)
    print("the last failed:", str(outcomes[-1].error).removeprefix("API Error: 400 "))
    print("within the budget:", 0 < budget.spent_tokens < 100_000)


asyncio.run(main())
