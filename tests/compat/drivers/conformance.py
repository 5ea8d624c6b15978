"""The SDK's own conformance suite for session stores, on one that holds what our engine mirrored into it.

Every contract gets a store with the mirrored sessions in it; afterwards they must be as they were.
"""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    get_session_info_from_store,
    get_subagent_messages_from_store,
    list_sessions_from_store,
    list_subagents_from_store,
    project_key_for_directory,
    query,
)
from claude_agent_sdk.testing import run_session_store_conformance
from folder_store import FolderStore
from telling import TASK, options, tell


async def ask(prompt: str, wanted: Any) -> str:
    session_id = ""
    async for message in query(prompt=prompt, options=wanted):
        tell("message", message)
        session_id = getattr(message, "session_id", None) or session_id
    return session_id


async def main() -> None:
    root, directory = Path(TASK["folder"]) / "store", TASK["directory"]
    store = FolderStore(root)
    wanted = dataclasses.replace(options(), cwd=directory, session_store=store)
    session_id = await ask("one", wanted)
    key = {"project_key": project_key_for_directory(directory), "session_id": session_id}
    mirrored = await store.load(key)
    stores: list[FolderStore] = []

    def with_mirrored_sessions() -> FolderStore:
        copy = Path(TASK["folder"]) / f"store-{len(stores)}"
        shutil.copytree(root, copy)
        stores.append(FolderStore(copy))
        return stores[-1]

    await run_session_store_conformance(with_mirrored_sessions)
    tell("contracts", len(stores))
    tell("untouched", [await one.load(key) == mirrored for one in stores])
    for session in await list_sessions_from_store(store, directory=directory):
        tell("session", session)
    tell("info", await get_session_info_from_store(store, session_id, directory=directory))
    for agent in await list_subagents_from_store(store, session_id, directory=directory):
        tell("agent", agent)
        for message in await get_subagent_messages_from_store(store, session_id, agent, directory=directory):
            tell("said", message)
    # The machine that wrote the session is gone with its files; the store is all there is.
    shutil.rmtree(TASK["config"])
    await ask("two", dataclasses.replace(wanted, resume=session_id))


asyncio.run(main())
