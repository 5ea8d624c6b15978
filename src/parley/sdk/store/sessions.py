"""List, read, rename, tag, delete, fork and import sessions of a program's own store.

The functions of `sdk/sessions.py` do the same for sessions on disk.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from parley.engine.clock import Clock
from parley.protocol.base import Json
from parley.sdk import sessions
from parley.sdk.sessions import (
    ForkSessionResult,
    SDKSessionInfo,
    SessionMessage,
    parse_milliseconds,
    project_key_for_directory,
)
from parley.sdk.store.checkout import METADATA, StoreCheckout
from parley.sdk.store.interface import SessionStore, has_method
from parley.sdk.types.shapes import SessionKey, SessionSummaryEntry
from parley.stores.session_open import is_uuid
from parley.workspace import private_files

BELOW = 2
"""How many folders above a transcript belong to the store: `projects/<project>`."""
BATCH_BYTES = 1 << 20


def session_key(session_id: str, directory: str | None) -> SessionKey:
    """Raises ValueError for an invalid id."""
    if not is_uuid(session_id):
        raise ValueError(f"invalid session id {session_id!r} (expected a UUID)")
    return {"project_key": project_key_for_directory(directory), "session_id": session_id}


def check_out_session(store: SessionStore, session_id: str, directory: str | None) -> StoreCheckout:
    return StoreCheckout(store, project_key_for_directory(directory), [session_id])


async def list_sessions_from_store(
    session_store: SessionStore, directory: str | None = None, limit: int | None = None, offset: int = 0
) -> list[SDKSessionInfo]:
    """Most recent first. Raises ValueError if the store cannot list sessions."""
    project = project_key_for_directory(directory)
    if not has_method(session_store, "list_sessions") and not has_method(session_store, "list_session_summaries"):
        raise ValueError("the store implements neither list_sessions() nor list_session_summaries()")
    times: dict[str, int] = {}
    if has_method(session_store, "list_sessions"):
        times = {one["session_id"]: one["mtime"] for one in await session_store.list_sessions(project)}
    found: dict[str, SDKSessionInfo | None] = {}
    if has_method(session_store, "list_session_summaries"):
        for summary in await session_store.list_session_summaries(project):
            # A summary older than its session is stale.
            if summary["mtime"] >= times.get(summary["session_id"], 0):
                found[summary["session_id"]] = convert_summary(summary)
    unread = [session_id for session_id in times if session_id not in found]
    async with StoreCheckout(session_store, project, unread) as files:
        for session_id in files.found:
            info = sessions.get_session_info(session_id, directory, env=files.environment)
            if info is not None:
                info.last_modified = times[session_id]
                found[session_id] = info
    ordered = sorted((info for info in found.values() if info), key=lambda info: info.last_modified, reverse=True)
    return ordered[offset : None if limit is None else offset + limit]


def convert_summary(summary: SessionSummaryEntry) -> SDKSessionInfo | None:
    """Return None for a subagent's transcript and for a session without a prompt."""
    data = summary["data"]
    title = data.get("custom_title") or data.get("ai_title")
    shown = title or data.get("first_prompt")
    if data.get("is_sidechain") or not shown:
        return None
    return SDKSessionInfo(
        session_id=summary["session_id"],
        summary=shown,
        last_modified=summary["mtime"],
        custom_title=title,
        first_prompt=data.get("first_prompt"),
        git_branch=data.get("git_branch"),
        cwd=data.get("cwd"),
        tag=data.get("tag"),
        created_at=parse_milliseconds(data.get("created_at", "")) or None,
    )


async def get_session_info_from_store(
    session_store: SessionStore, session_id: str, directory: str | None = None
) -> SDKSessionInfo | None:
    """The session with this id; None if there is none."""
    if not is_uuid(session_id):
        return None
    async with check_out_session(session_store, session_id, directory) as files:
        return sessions.get_session_info(session_id, directory, env=files.environment)


async def get_session_messages_from_store(
    session_store: SessionStore,
    session_id: str,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SessionMessage]:
    """The messages of a session, in order."""
    if not is_uuid(session_id):
        return []
    async with check_out_session(session_store, session_id, directory) as files:
        return sessions.get_session_messages(session_id, directory, limit, offset, env=files.environment)


async def list_subagents_from_store(
    session_store: SessionStore, session_id: str, directory: str | None = None
) -> list[str]:
    """Raises ValueError if the store cannot list subagents."""
    if not has_method(session_store, "list_subkeys"):
        raise ValueError("the store does not implement list_subkeys(), which lists subagents")
    if not is_uuid(session_id):
        return []
    subpaths = await session_store.list_subkeys(
        {"project_key": project_key_for_directory(directory), "session_id": session_id}
    )
    names = [Path(subpath).name for subpath in subpaths if subpath.startswith("subagents/")]
    return sorted(name.removeprefix("agent-") for name in names if name.startswith("agent-"))


async def get_subagent_messages_from_store(
    session_store: SessionStore,
    session_id: str,
    agent_id: str,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SessionMessage]:
    """The messages of a subagent, in order."""
    if not is_uuid(session_id):
        return []
    async with check_out_session(session_store, session_id, directory) as files:
        return sessions.get_subagent_messages(session_id, agent_id, directory, limit, offset, env=files.environment)


async def rename_session_via_store(
    session_store: SessionStore, session_id: str, title: str, directory: str | None = None
) -> None:
    """Raises ValueError."""
    key = session_key(session_id, directory)
    if not title.strip():
        raise ValueError("title must not be empty")
    await append_line(session_store, key, {"type": "custom-title", "customTitle": title.strip()})


async def tag_session_via_store(
    session_store: SessionStore, session_id: str, tag: str | None, directory: str | None = None
) -> None:
    """None removes the tag. Raises ValueError."""
    key = session_key(session_id, directory)
    if tag is not None and not tag.strip():
        raise ValueError("tag must not be empty; pass None to remove it")
    await append_line(session_store, key, {"type": "tag", "tag": (tag or "").strip()})


async def append_line(store: SessionStore, key: SessionKey, line: Json) -> None:
    clock = Clock()
    entry: Any = {**line, "sessionId": key["session_id"], "uuid": clock.new_uuid(), "timestamp": clock.now()}
    await store.append(key, [entry])


async def delete_session_via_store(session_store: SessionStore, session_id: str, directory: str | None = None) -> None:
    """No effect if the store cannot delete. Raises ValueError."""
    key = session_key(session_id, directory)
    if has_method(session_store, "delete"):
        await session_store.delete(key)


async def fork_session_via_store(
    session_store: SessionStore,
    session_id: str,
    directory: str | None = None,
    up_to_message_id: str | None = None,
    title: str | None = None,
) -> ForkSessionResult:
    """A copy with new ids. Raises ValueError, FileNotFoundError."""
    key = session_key(session_id, directory)
    lines: list[Any] | None = await session_store.load(key)
    if lines is None:
        raise FileNotFoundError(f"no session with id {session_id}")
    copied, new = fork_lines(lines, session_id, up_to_message_id), Clock().new_uuid()
    info = await get_session_info_from_store(session_store, session_id, directory)
    new_title = title or f"{info.summary if info is not None else 'session'} (fork)"
    entries: list[Any] = [{**line, "sessionId": new} for line in copied]
    entries.append({"type": "custom-title", "customTitle": new_title, "sessionId": new, "uuid": Clock().new_uuid()})
    await session_store.append({**key, "session_id": new}, entries)
    return ForkSessionResult(new)


LINKS = ("uuid", "parentUuid", "logicalParentUuid", "leafUuid", "sourceToolAssistantUUID")


def fork_lines(lines: list[Json], session_id: str, up_to: str | None) -> list[Json]:
    """Copy lines with new ids, up to and including the line `up_to`. Raises ValueError."""
    new_uuid = Clock().new_uuid
    copied = [line for line in lines if not line.get("isSidechain") and line.get("type") not in ("custom-title", "tag")]
    if up_to is not None:
        at = next((number for number, line in enumerate(copied) if line.get("uuid") == up_to), None)
        if at is None:
            raise ValueError(f"session {session_id} has no message {up_to!r}")
        copied = copied[: at + 1]
    if not any(line.get("type") in ("user", "assistant") for line in copied):
        raise ValueError(f"session {session_id} has no messages to fork")
    renamed = {line["uuid"]: new_uuid() for line in copied if isinstance(line.get("uuid"), str)}
    return [
        {
            **line,
            **{name: renamed.get(line[name], line[name]) for name in LINKS if isinstance(line.get(name), str)},
            **({"forkedFrom": {"sessionId": session_id, "messageUuid": line["uuid"]}} if "uuid" in line else {}),
        }
        for line in copied
    ]


async def import_session_to_store(
    session_id: str,
    store: SessionStore,
    *,
    directory: str | None = None,
    include_subagents: bool = True,
    batch_size: int = 500,
) -> None:
    """Copy a session from disk into a store. Raises ValueError, FileNotFoundError."""
    found, _ = sessions.SessionLookup(directory, None, None).find(session_id)
    path = Path(found.path(session_id))
    key: SessionKey = {"project_key": path.parent.name, "session_id": session_id}
    await send_batches(store, key, path, batch_size, BELOW)
    if not include_subagents:
        return
    home = path.with_suffix("")
    for agent in sorted(home.glob("subagents/**/agent-*.jsonl")):
        subpath = agent.relative_to(home).as_posix().removesuffix(".jsonl")
        part: SessionKey = {**key, "subpath": subpath}
        below = BELOW + len(agent.relative_to(path.parent).parts) - 1
        meta = agent.with_suffix(".meta.json")
        if meta.exists():
            data = private_files.read(meta, below=below)
            head: Any = {**msgspec.json.decode(data, type=dict), "type": METADATA}
            await store.append(part, [head])
        await send_batches(store, part, agent, batch_size, below)


async def send_batches(store: SessionStore, key: SessionKey, path: Path, batch_size: int, below: int) -> None:
    """Append the lines of a file. `below`: how many folders above it belong to the store.

    Raises OSError if the file or one of these folders is a symbolic link.
    """
    batch: list[Any] = []
    size = 0
    with os.fdopen(private_files.open_file(path, os.O_RDONLY, below=below), "rb") as file:
        for line in file:
            try:
                batch.append(msgspec.json.decode(line, type=dict))
            except msgspec.DecodeError:
                continue  # truncated by a crash, or not a transcript line
            size += len(line)
            if len(batch) >= batch_size or size >= BATCH_BYTES:
                await store.append(key, batch)
                batch, size = [], 0
    if batch:
        await store.append(key, batch)
