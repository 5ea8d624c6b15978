"""`query()` with options of the task's choice."""

from __future__ import annotations

import asyncio
import dataclasses

from claude_agent_sdk import query
from telling import TASK, options, tell, tell_error


async def main() -> None:
    try:
        async for message in query(prompt=TASK["prompt"], options=dataclasses.replace(options(), **TASK["options"])):
            tell("message", message)
    except Exception as exc:
        tell_error(exc)


asyncio.run(main())
