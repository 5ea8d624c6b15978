"""Limit what a session may spend. A turn that reaches a limit ends with an error result.

Prints:
    max_turns: error_max_turns at model call 3
    max_budget_calls: error_during_execution because of budget_exhausted
    max_budget_usd: success for $0.00
"""

import asyncio
from typing import Any

from parley import Client, Options, ResultMessage

LONG = "\n".join(['call Bash {"command": "true"}', "think And again."] * 5)


async def run(prompt: str, **limits: Any) -> ResultMessage:
    options = Options(model="offline", allowed_tools=["Bash"], **limits)
    async with Client(options) as client:
        result = await (await client.ask(prompt))
        assert result is not None  # only a cancelled prompt has no result
        return result


async def main() -> None:
    result = await run(LONG, max_turns=2)
    print("max_turns:", result.subtype, "at model call", result.num_turns)

    result = await run(LONG, max_budget_calls=3)
    print("max_budget_calls:", result.subtype, "because of", result.terminal_reason)

    result = await run("say Cheap.", max_budget_usd=0.50)  # the offline model costs nothing
    print(f"max_budget_usd: {result.subtype} for ${result.total_cost_usd:.2f}")


asyncio.run(main())
