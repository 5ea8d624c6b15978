"""The memory of a session: whether there is one, and where.

--db FILE             in the database of the sessions
--memory              there too, or beside the logs of the project
--memory FILE         in a file of its own, which many sessions may share
--memory off          none; nor is there one where nothing of the session is kept
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from parley.compose.launch_context import LaunchContext
from parley.stores.files.claude import project_key
from parley.stores.selection import choose

if TYPE_CHECKING:
    from parley.compose.models import ModelFactory
    from parley.compose.stores import SessionStores
    from parley.memory.base import MemoryPolicy, Recall, SessionMemory
    from parley.memory.database import MemoryDatabase
    from parley.memory.knowledge_tree import KnowledgeTree
    from parley.memory.session_memory import LocalSessionMemory

PROJECTS, FILE = "projects", "memory.db"
OFF, ON = ("off", "false", "none"), ("", "on", "true")


def memory_path(launch: LaunchContext) -> Path | None:
    """The file of the memory; None if there shall be none. Raises UsageError."""
    asked, set_to = launch.options.memory, (launch.settings.merged.get("memory") or {}).get("enabled")
    if launch.options.no_session_persistence or (asked or "").lower() in OFF:
        return None
    if asked is None and (set_to is False or (set_to is None and not launch.options.database)):
        return None
    if asked is not None and asked.lower() not in ON:
        return Path(launch.cwd, os.path.expanduser(asked))
    return default_path(launch)


def default_path(launch: LaunchContext) -> Path:
    """Where a memory is that was not put elsewhere. Raises UsageError."""
    chosen = choose(launch.options, launch.environment)
    if chosen is not None and chosen.holds_memory:
        return Path(launch.cwd, os.path.expanduser(chosen.location))
    return launch.config / PROJECTS / project_key(launch.cwd) / FILE


def make_policy(launch: LaunchContext) -> MemoryPolicy:
    from parley.memory.base import MemoryPolicy
    from parley.settings.memory_options import policy_fields

    return MemoryPolicy(**policy_fields(launch.settings.merged.get("memory") or {}))


def check_models(launch: LaunchContext, models: ModelFactory) -> None:
    """What is wrong with a model of the memory is told at the start. Raises UsageError."""
    if memory_path(launch) is not None and (wished := launch.settings.merged.get("memory")):
        for key in ("model", "summaryModel"):
            if named := wished.get(key):
                models.check_first(named)


def memory_opener(
    launch: LaunchContext, sessions: SessionStores, session_id: str
) -> Callable[[], SessionMemory] | None:
    """How the memory of a session is opened; None if there is none. Raises UsageError."""
    path = memory_path(launch)
    if path is None:
        return None

    @cache
    def made() -> SessionMemory:
        return open_memory(launch, sessions, session_id, open_database(path))

    return made


def open_memory(
    launch: LaunchContext, sessions: SessionStores, session_id: str, database: MemoryDatabase
) -> LocalSessionMemory:
    from parley.memory.session_memory import LocalSessionMemory, MemoryLocation

    here = MemoryLocation(
        database=database,
        session_id=session_id,
        open_store=lambda: sessions.store(session_id),
        now=launch.clock.now,
        redact=lambda: make_redactor(launch),
    )
    return LocalSessionMemory(here, make_policy(launch))


# For a person, who looks in from outside.


def open_database(path: Path, *, dry_run: bool = False) -> MemoryDatabase:
    """The file, or a copy of it that nobody keeps. Raises SessionError."""
    from parley.memory.database import MemoryDatabase

    is_usual = path.name == FILE and path.parent.parent.name == PROJECTS
    database = MemoryDatabase(path, below=2 if is_usual else 0)
    return database.dry_run() if dry_run else database


def open_tree(launch: LaunchContext, path: Path, author: str, *, dry_run: bool = False) -> KnowledgeTree:
    """Raises SessionError."""
    from parley.memory.knowledge_tree import KnowledgeTree

    return KnowledgeTree(open_database(path, dry_run=dry_run), launch.clock.now, author)


def open_recall(sessions: SessionStores, path: Path) -> Recall:
    """For all sessions that are kept in the same place."""
    from parley.memory.recall import LocalRecall

    return LocalRecall(open_database(path), sessions.store, "")


def forget(launch: LaunchContext, session_id: str) -> None:
    """A session is deleted: its summaries go with it. Raises SessionError."""
    path = memory_path(launch) or default_path(launch)
    if path.exists():
        from parley.memory.summaries import Summaries

        Summaries(open_database(path), launch.clock.now).forget(session_id)


def inherit(launch: LaunchContext, fork: str, session_id: str) -> None:
    """A copy of a session has its summaries, and need not be looked through once more. Raises SessionError."""
    path = memory_path(launch) or default_path(launch)
    if path.exists():
        from parley.memory.summaries import Summaries

        Summaries(open_database(path), launch.clock.now).inherit(fork, session_id)


def make_redactor(launch: LaunchContext) -> Callable[[str], str]:
    """What takes the secrets that we know, or know the shape of, out of a text."""
    from parley.models.redaction import Redactor, find_secrets
    from parley.settings import credentials

    return Redactor([*find_secrets(launch.environment), *credentials.known_secrets(launch.credentials())]).redact_text
