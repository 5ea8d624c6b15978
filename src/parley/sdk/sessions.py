"""List, read, rename, tag, delete and fork stored sessions.

    for info in list_sessions(directory="."): ...
    get_session_messages(info.session_id, store="sqlite:/srv/sessions.db")

Without `store`, the engine's rule applies: PARLEY_STORE, else the files of Claude Code and of Parley.
As in the official SDK, the functions are synchronous. To follow a running session, use `attach`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from parley.compose import memory
from parley.compose.launch_context import LaunchContext, forget_history
from parley.compose.stores import SessionStores
from parley.engine.clock import Clock
from parley.errors import UnknownSession
from parley.protocol.options import CliOptions as Flags
from parley.stores.base import Entry, Info, Store, copy_entries
from parley.stores.export import import_session, set_labels
from parley.stores.files.entry_codec import with_all_figures
from parley.stores.session_open import (
    conversation_entries,
    entries_about_answers,
    entries_before_cut,
    is_prompt,
    is_uuid,
)

NOT_FOUND = "no session with id {}"


@dataclass
class SDKSessionInfo:
    """A past session, as `list_sessions` returns it."""

    session_id: str
    summary: str
    last_modified: int
    """Milliseconds since 1970, as is `created_at`."""
    file_size: int | None = None
    custom_title: str | None = None
    first_prompt: str | None = None
    git_branch: str | None = None
    cwd: str | None = None
    tag: str | None = None
    created_at: int | None = None


@dataclass
class SessionMessage:
    """One message of a conversation."""

    type: Literal["user", "assistant"]
    uuid: str
    session_id: str
    message: Any
    parent_tool_use_id: str | None = None
    parent_agent_id: str | None = None


@dataclass
class ForkSessionResult:
    """The id of a new session."""

    session_id: str


class SessionLookup:
    """Finds the store of a directory and the sessions in it."""

    def __init__(
        self, directory: str | os.PathLike[str] | None, store: str | None, env: Mapping[str, str] | None
    ) -> None:
        folder = os.path.abspath(directory or os.curdir)
        flags = Flags(store=store) if store is not None else Flags()
        self.basis = LaunchContext(flags, dict(os.environ if env is None else env), folder)
        self.sessions = SessionStores(self.basis)

    def store(self, session_id: str | None = None) -> Store:
        return self.sessions.store(session_id)

    def find(self, session_id: str) -> tuple[Store, Info]:
        """Raises ValueError for an invalid id, FileNotFoundError for an unknown session."""
        if not is_uuid(session_id):
            raise ValueError(f"invalid session id {session_id!r} (expected a UUID)")
        store = self.store(session_id)
        info = store.info(session_id)
        if info is None:
            raise FileNotFoundError(NOT_FOUND.format(session_id))
        return store, info


def list_sessions(
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
    include_worktrees: bool = True,
    *,
    store: str | None = None,
    env: Mapping[str, str] | None = None,
) -> list[SDKSessionInfo]:
    """The sessions of a directory, or of all directories; most recent first."""
    found = SessionLookup(directory, store, env).store()
    if directory is None:
        return [convert_info(info) for info in found.list(None, limit, offset)]
    folders = list_worktrees(Path(directory)) if include_worktrees else [os.path.abspath(directory)]
    if len(folders) == 1:
        return [convert_info(info) for info in found.list(folders[0], limit, offset)]
    most = None if limit is None else limit + offset
    all_of_them = {info.id: info for folder in folders for info in found.list(folder, most)}
    ordered = sorted(all_of_them.values(), key=lambda info: info.modified, reverse=True)
    return [convert_info(info) for info in ordered[offset : None if limit is None else offset + limit]]


def get_session_info(
    session_id: str, directory: str | None = None, *, store: str | None = None, env: Mapping[str, str] | None = None
) -> SDKSessionInfo | None:
    """The session with this id; None if there is none."""
    if not is_uuid(session_id):
        return None
    info = SessionLookup(directory, store, env).store(session_id).info(session_id)
    return None if info is None else convert_info(info)


def get_session_messages(
    session_id: str,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
    *,
    store: str | None = None,
    env: Mapping[str, str] | None = None,
) -> list[SessionMessage]:
    """The messages on the current branch; empty if there is no such session."""
    return paginate(read_conversation(session_id, directory, store, env), session_id, limit, offset)


def read_conversation(
    session_id: str, directory: str | None, store: str | None, env: Mapping[str, str] | None
) -> list[Entry]:
    """The messages on the current branch, as they are stored; empty if there is no such session."""
    if not is_uuid(session_id):
        return []
    try:
        entries = with_all_figures(SessionLookup(directory, store, env).store(session_id).read(session_id))
    except UnknownSession:
        return []
    return [entry for _, entry in conversation_entries(entries)]


def list_subagents(
    session_id: str, directory: str | None = None, *, store: str | None = None, env: Mapping[str, str] | None = None
) -> list[str]:
    """The ids of the subagents of a session."""
    if not is_uuid(session_id):
        return []
    return sorted(agent.id for agent in SessionLookup(directory, store, env).store(session_id).agents(session_id))


def get_subagent_messages(
    session_id: str,
    agent_id: str,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
    *,
    store: str | None = None,
    env: Mapping[str, str] | None = None,
) -> list[SessionMessage]:
    """The messages of a subagent, in order."""
    if not is_uuid(session_id):
        return []
    entries = with_all_figures(SessionLookup(directory, store, env).store(session_id).read_agent(session_id, agent_id))
    return paginate([entry for _, entry in conversation_entries(entries)], session_id, limit, offset)


def rename_session(
    session_id: str,
    title: str,
    directory: str | None = None,
    *,
    store: str | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Raises ValueError for an empty title, FileNotFoundError for an unknown session."""
    if not title.strip():
        raise ValueError("title must not be empty")
    found, _ = SessionLookup(directory, store, env).find(session_id)
    found.rename(session_id, title.strip())


def tag_session(
    session_id: str,
    tag: str | None,
    directory: str | None = None,
    *,
    store: str | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """None removes the tag. Raises ValueError for an empty tag, FileNotFoundError for an unknown session."""
    if tag is not None and not tag.strip():
        raise ValueError("tag must not be empty; pass None to remove it")
    found, _ = SessionLookup(directory, store, env).find(session_id)
    found.tag(session_id, None if tag is None else tag.strip())


def delete_session(
    session_id: str, directory: str | None = None, *, store: str | None = None, env: Mapping[str, str] | None = None
) -> None:
    """Raises FileNotFoundError, or SessionBusy if a process holds the session."""
    lookup = SessionLookup(directory, store, env)
    found, _ = lookup.find(session_id)
    found.delete(session_id)
    memory.forget(lookup.basis, session_id)
    # Without the session, its file checkpoints cannot be restored.
    forget_history(lookup.basis, session_id)


def fork_session(
    session_id: str,
    directory: str | None = None,
    up_to_message_id: str | None = None,
    title: str | None = None,
    *,
    store: str | None = None,
    env: Mapping[str, str] | None = None,
) -> ForkSessionResult:
    """Copy a session, up to a message if one is given. Raises ValueError, FileNotFoundError, SessionError."""
    lookup = SessionLookup(directory, store, env)
    found, info = lookup.find(session_id)
    entries = list(found.read(session_id))
    if up_to_message_id is not None:
        kept = entries_before_cut(entries, up_to_message_id, None)
        entries = [*kept, *entries_about_answers(kept, entries[len(kept) :])]
    if not any(is_prompt(entry.message) for entry in entries if entry.kind == "user"):
        raise ValueError(f"session {session_id} has no prompt to fork from")
    if directory is None and info.cwd:
        # A fork belongs to the project of its source.
        lookup = SessionLookup(info.cwd, store, env)
        found = lookup.store(session_id)
    new = Clock().new_uuid()
    import_session(found, new, copy_entries([entry for entry in entries if entry.kind != "title"], new))
    set_labels(found, new, title or f"{info.title or info.first_prompt or 'session'} (fork)", info.tag)
    lookup.sessions.inherit(new, session_id)
    return ForkSessionResult(new)


def project_key_for_directory(directory: str | os.PathLike[str] | None = None) -> str:
    """The key under which sessions of a directory are stored."""
    from parley.compose.launch_context import project_name

    return project_name(os.path.abspath(directory or os.curdir))


def paginate(entries: list[Entry], session_id: str, limit: int | None, offset: int) -> list[SessionMessage]:
    return [convert_entry(entry, session_id) for entry in entries[offset : None if limit is None else offset + limit]]


def convert_entry(entry: Entry, session_id: str) -> SessionMessage:
    line = entry.message
    return SessionMessage(
        type="user" if entry.kind == "user" else "assistant",
        uuid=str(line.get("uuid", "")),
        session_id=session_id,
        message=line.get("message"),
        parent_tool_use_id=line.get("parent_tool_use_id"),
        parent_agent_id=line.get("agent_id"),
    )


def convert_info(info: Info) -> SDKSessionInfo:
    return SDKSessionInfo(
        session_id=info.id,
        summary=info.title or info.first_prompt or "",
        last_modified=parse_milliseconds(info.modified),
        file_size=info.size_bytes,
        custom_title=info.title,
        first_prompt=info.first_prompt,
        git_branch=info.git_branch,
        cwd=info.cwd or None,
        tag=info.tag,
        created_at=parse_milliseconds(info.created),
    )


def parse_milliseconds(iso: str) -> int:
    try:
        return int(datetime.fromisoformat(iso.replace("Z", "+00:00")).timestamp() * 1000)
    except ValueError:
        return 0


def list_worktrees(folder: Path) -> list[str]:
    """Return a folder and the other worktrees of its repository. Reads git's files; runs no command."""
    folder = folder.absolute()
    git = folder / ".git"
    try:
        if git.is_file():
            git = (folder / git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()).resolve()
            git = (git / (git / "commondir").read_text(encoding="utf-8").strip()).resolve()
        named = [path.read_text(encoding="utf-8").strip() for path in git.glob("worktrees/*/gitdir")]
    except (OSError, ValueError):  # ValueError: not UTF-8, or not a valid path
        return [str(folder)]
    others = [str(git.parent), *(str(Path(path).parent) for path in named)]
    return list(dict.fromkeys([str(folder), *others])) if named else [str(folder)]
