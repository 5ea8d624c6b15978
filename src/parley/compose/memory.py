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

from parley.compose.launch_context import Basis
from parley.stores.files.claude import project_key
from parley.stores.selection import choose

if TYPE_CHECKING:
    from parley.compose.models import Models
    from parley.compose.stores import Sessions
    from parley.memory.base import Keeper, Policy, Recall
    from parley.memory.database import Database
    from parley.memory.knowledge_tree import Tree
    from parley.memory.session_memory import LocalKeeper

PROJECTS, FILE = "projects", "memory.db"
OFF, ON = ("off", "false", "none"), ("", "on", "true")


def place(basis: Basis) -> Path | None:
    """The file of the memory; None if there shall be none. Raises UsageError."""
    asked, set_to = basis.options.memory, (basis.settings.merged.get("memory") or {}).get("enabled")
    if basis.options.no_session_persistence or (asked or "").lower() in OFF:
        return None
    if asked is None and (set_to is False or (set_to is None and not basis.options.database)):
        return None
    if asked is not None and asked.lower() not in ON:
        return Path(basis.cwd, os.path.expanduser(asked))
    return usual_place(basis)


def usual_place(basis: Basis) -> Path:
    """Where a memory is that was not put elsewhere. Raises UsageError."""
    chosen = choose(basis.options, basis.environment)
    if chosen is not None and chosen.name == "sqlite":
        return Path(basis.cwd, os.path.expanduser(chosen.place))
    return basis.config / PROJECTS / project_key(basis.cwd) / FILE


def policy(basis: Basis) -> Policy:
    from parley.memory.base import Policy
    from parley.settings.memory_options import policy_fields

    return Policy(**policy_fields(basis.settings.merged.get("memory") or {}))


def check(basis: Basis, models: Models) -> None:
    """What is wrong with a model of the memory is told at the start. Raises UsageError."""
    if place(basis) is not None and (wished := basis.settings.merged.get("memory")):
        for key in ("model", "summaryModel"):
            if named := wished.get(key):
                models.check_first(named)


def keeper(basis: Basis, sessions: Sessions, session_id: str) -> Callable[[], Keeper] | None:
    """How the memory of a session is opened; None if there is none. Raises UsageError."""
    path = place(basis)
    if path is None:
        return None

    @cache
    def made() -> Keeper:
        return keeper_of(basis, sessions, session_id, opened(path))

    return made


def keeper_of(basis: Basis, sessions: Sessions, session_id: str, database: Database) -> LocalKeeper:
    from parley.memory.session_memory import LocalKeeper, Place

    here = Place(
        database=database,
        session_id=session_id,
        open_store=lambda: sessions.store(session_id),
        now=basis.stamp.now,
        redact=lambda: redaction(basis),
    )
    return LocalKeeper(here, policy(basis))


# For a person, who looks in from outside.


def opened(path: Path, *, rehearsed: bool = False) -> Database:
    """The file, or a copy of it that nobody keeps. Raises SessionError."""
    from parley.memory.database import Database

    is_usual = path.name == FILE and path.parent.parent.name == PROJECTS
    database = Database(path, below=2 if is_usual else 0)
    return database.rehearsal() if rehearsed else database


def tree(basis: Basis, path: Path, author: str, *, rehearsed: bool = False) -> Tree:
    """Raises SessionError."""
    from parley.memory.knowledge_tree import Tree

    return Tree(opened(path, rehearsed=rehearsed), basis.stamp.now, author)


def recall(sessions: Sessions, path: Path) -> Recall:
    """For all sessions that are kept in the same place."""
    from parley.memory.recall import LocalRecall

    return LocalRecall(opened(path), sessions.store, "")


def forget(basis: Basis, session_id: str) -> None:
    """A session is deleted: its summaries go with it. Raises SessionError."""
    path = place(basis) or usual_place(basis)
    if path.exists():
        from parley.memory.summaries import Summaries

        Summaries(opened(path), basis.stamp.now).forget(session_id)


def inherit(basis: Basis, fork: str, session_id: str) -> None:
    """A copy of a session has its summaries, and need not be looked through once more. Raises SessionError."""
    path = place(basis) or usual_place(basis)
    if path.exists():
        from parley.memory.summaries import Summaries

        Summaries(opened(path), basis.stamp.now).inherit(fork, session_id)


def redaction(basis: Basis) -> Callable[[str], str]:
    """What takes the secrets that we know, or know the shape of, out of a text."""
    from parley.models.redaction import Redaction, secrets_in
    from parley.settings import credentials

    return Redaction([*secrets_in(basis.environment), *credentials.known(basis.credentials())]).text
