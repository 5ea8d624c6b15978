"""Sessions in a store of the client's own: prompts one after the other, each in a new process of the engine."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from claude_agent_sdk import (
    InMemorySessionStore,
    get_session_messages_from_store,
    list_sessions_from_store,
    query,
)
from telling import TASK, options, tell, tell_error


async def main() -> None:
    store = InMemorySessionStore()
    session_id: str | None = None
    for step in TASK["steps"]:
        wanted = dataclasses.replace(options(), cwd=TASK["directory"], session_store=store, **step["options"])
        if session_id is not None:
            wanted = dataclasses.replace(wanted, resume=session_id)
        session_id = await ask(step["prompt"], wanted) or session_id
    for session in await list_sessions_from_store(store, directory=TASK["directory"]):
        tell("session", session)
        for message in await get_session_messages_from_store(store, session.session_id, directory=TASK["directory"]):
            tell("entry", message)


async def ask(prompt: str, wanted: Any) -> str | None:
    found = None
    try:
        async for message in query(prompt=prompt, options=wanted):
            tell("message", message)
            found = getattr(message, "session_id", found)
    except Exception as exc:
        tell_error(exc)
    return found


asyncio.run(main())
