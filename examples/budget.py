"""Limit what a session, or all sessions together, may spend. A turn that reaches a limit fails.

Prints:
    max_turns: error_max_turns
    max_budget_calls: error_during_execution because of budget_exhausted
    a spent budget: the budget of 10 tokens is spent (10)
"""

import asyncio
from typing import Any

from parley import Budget, BudgetExceeded, Options, ResultError, run

LONG = "\n".join(['call Bash {"command": "true"}', "think And again."] * 5)


async def try_it(**limits: Any) -> ResultError | None:
    try:
        await run(LONG, Options(model="offline", allowed_tools=["Bash"], **limits))
    except ResultError as exc:
        return exc
    return None


async def main() -> None:
    if error := await try_it(max_turns=2):
        print("max_turns:", error.subtype)
    if error := await try_it(max_budget_calls=3):
        print("max_budget_calls:", error.subtype, "because of", error.terminal_reason)

    budget = Budget(tokens=10)  # shared by all clients that have it in their options
    budget.add(usd=0, tokens=10)
    try:
        await run("say Hello.", Options(model="offline", budget=budget))
    except BudgetExceeded as exc:
        print("a spent budget:", exc)


asyncio.run(main())
