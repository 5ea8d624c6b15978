"""The long-term memory of a session: whether it has one, and in which file.

--db FILE             in the database of the sessions
--memory              there too, or beside the logs of the project
--memory FILE         in a file of its own, which several sessions can share
--memory off          none, as in sessions that are not stored
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from parley.compose.launch_context import LaunchContext
from parley.settings import credentials
from parley.stores.base import Store
from parley.stores.files.store import project_key
from parley.stores.selection import choose

if TYPE_CHECKING:
    from parley.engine.context.conversation import Conversation
    from parley.memory.base import MemoryPolicy, MemoryWorker, Recall
    from parley.memory.knowledge_tree import KnowledgeTree, MemoryDatabase
    from parley.memory.session_memory import SessionMemory

OpenStore = Callable[[str | None], "Store"]
"""Opens the store that has a session, or the default store."""
PROJECTS, FILE = "projects", "memory.db"
OFF, ON = ("off", "false", "none"), ("", "on", "true")


def memory_path(launch: LaunchContext) -> Path | None:
    """The file of the memory; None if there is none. Raises UsageError."""
    option, setting = launch.options.memory, (launch.settings.merged.get("memory") or {}).get("enabled")
    if launch.options.no_session_persistence or (option or "").lower() in OFF:
        return None
    if option is None and launch.settings.merged.get("autoMemoryEnabled") is False:
        return None
    if option is None and (setting is False or (setting is None and not launch.options.database)):
        return None
    if option is not None and option.lower() not in ON:
        return Path(launch.host_folder, os.path.expanduser(option))
    return default_path(launch)


def default_path(launch: LaunchContext) -> Path:
    """The default file. Raises UsageError."""
    chosen = choose(launch.options, launch.environment)
    if chosen is not None and chosen.holds_memory:
        return Path(launch.host_folder, os.path.expanduser(chosen.location))
    return launch.config / PROJECTS / project_key(launch.cwd) / FILE


def make_policy(launch: LaunchContext) -> MemoryPolicy:
    from parley.memory.base import MemoryPolicy
    from parley.settings.keys import policy_fields

    return MemoryPolicy(**policy_fields(launch.settings.merged.get("memory") or {}))


def check_models(launch: LaunchContext, check: Callable[[str], None]) -> None:
    """Check the models of the memory at start-up. Raises UsageError."""
    if memory_path(launch) is not None and (settings := launch.settings.merged.get("memory")):
        for key in ("model", "summaryModel"):
            if named := settings.get(key):
                check(named)


def memory_opener(launch: LaunchContext, open_store: OpenStore, session_id: str) -> Callable[[], SessionMemory] | None:
    """A function that opens the memory of a session once; None if it has none. Raises UsageError."""
    path = memory_path(launch)
    if path is None:
        return None

    return cache(lambda: open_memory(launch, open_store, session_id, open_database(path)))


def worker_factory(open_memory: Callable[[], SessionMemory] | None) -> Callable[[Conversation], MemoryWorker] | None:
    """How a session makes the worker of its memory; None if it has no memory."""
    if open_memory is None:
        return None

    def make_worker(conversation: Conversation) -> MemoryWorker:
        from parley.memory.worker import LocalMemoryWorker

        return LocalMemoryWorker(conversation, open_memory)

    return make_worker


def open_memory(
    launch: LaunchContext, open_store: OpenStore, session_id: str, database: MemoryDatabase
) -> SessionMemory:
    from parley.memory.session_memory import SessionMemory

    return SessionMemory(
        database,
        session_id,
        lambda: open_store(session_id),
        launch.clock.now,
        make_policy(launch),
        lambda: make_redactor(launch),
    )


# For the command line.


def open_database(path: Path, *, dry_run: bool = False) -> MemoryDatabase:
    """Open the file, or a temporary copy of it. Raises SessionError."""
    from parley.memory.knowledge_tree import MemoryDatabase

    is_default = path.name == FILE and path.parent.parent.name == PROJECTS
    database = MemoryDatabase(path, below=2 if is_default else 0)
    return database.dry_run() if dry_run else database


def open_tree(launch: LaunchContext, path: Path, author: str, *, dry_run: bool = False) -> KnowledgeTree:
    """Raises SessionError."""
    from parley.memory.knowledge_tree import KnowledgeTree

    return KnowledgeTree(open_database(path, dry_run=dry_run), launch.clock.now, author)


def open_recall(open_store: OpenStore, path: Path) -> Recall:
    """Search across all sessions of the store."""
    from parley.memory.session_memory import SessionMemory

    return SessionMemory(open_database(path), "", lambda: open_store(None))


def forget(launch: LaunchContext, session_id: str) -> None:
    """Delete what the memory knows of a deleted session. Raises SessionError."""
    path = memory_path(launch) or default_path(launch)
    if path.exists():
        from parley.memory.session_memory import forget_session

        forget_session(open_database(path), session_id)


def inherit(launch: LaunchContext, fork: str, session_id: str) -> None:
    """Copy the progress of a session to its fork. Raises SessionError."""
    path = memory_path(launch) or default_path(launch)
    if path.exists():
        from parley.memory.session_memory import inherit_session

        inherit_session(open_database(path), fork, session_id)


def make_redactor(launch: LaunchContext) -> Callable[[str], str]:
    """A function that removes known secrets, and text shaped like one, from a text."""
    from parley.models.redaction import Redactor, find_secrets

    return Redactor([*find_secrets(launch.environment), *credentials.known_secrets(launch.credentials())]).redact_text
