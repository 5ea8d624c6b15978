"""A session from disk put into a store of the client's own, and resumed from there."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
from typing import Any

from claude_agent_sdk import InMemorySessionStore, import_session_to_store, query
from telling import TASK, options, tell


def sorting_store() -> Any:
    """Gives back what it was given as PostgreSQL's JSONB does: short names come first."""
    store = InMemorySessionStore()
    load = store.load

    async def sorted_load(key: Any) -> list[Any] | None:
        return [in_order(entry) for entry in await load(key) or []] or None

    store.load = sorted_load
    return store


def in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: in_order(value[name]) for name in sorted(value, key=lambda name: (len(name), name))}
    return [in_order(one) for one in value] if isinstance(value, list) else value


STORES = {"as it is": InMemorySessionStore, "sorted": sorting_store}


async def main() -> None:
    store = STORES[TASK["store"]]()
    await import_session_to_store(TASK["session_id"], store, directory=TASK["directory"])
    shutil.rmtree(TASK["config"])
    wanted = dataclasses.replace(options(), cwd=TASK["directory"], session_store=store, resume=TASK["session_id"])
    async for message in query(prompt=TASK["prompt"], options=wanted):
        tell("message", message)


asyncio.run(main())
