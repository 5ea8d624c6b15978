"""A session from disk put into a store of the client's own, and resumed from there."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil

from claude_agent_sdk import InMemorySessionStore, import_session_to_store, query
from telling import TASK, options, tell


async def main() -> None:
    store = InMemorySessionStore()
    await import_session_to_store(TASK["session_id"], store, directory=TASK["directory"])
    shutil.rmtree(TASK["config"])
    wanted = dataclasses.replace(options(), cwd=TASK["directory"], session_store=store, resume=TASK["session_id"])
    async for message in query(prompt=TASK["prompt"], options=wanted):
        tell("message", message)


asyncio.run(main())
