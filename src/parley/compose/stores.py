"""Which session this is, and where its log and its agents' logs are kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from parley.compose import memory
from parley.compose.launch_context import Basis
from parley.compose.limits import line_bytes
from parley.compose.paths import file_history
from parley.compose.registry import STORES, manners, variety
from parley.protocol.base import Json, Message
from parley.protocol.options import Options
from parley.stores.base import Agent, Log, Store
from parley.stores.files.claude import project_key
from parley.stores.files.entry_codec import Context
from parley.stores.selection import Chosen, choose
from parley.stores.session_open import Wanted, open_session
from parley.workspace.checkpoint.store import Checkpoints

STORE_OPENERS: dict[str, Callable[[Any, Any, Context, Callable[[str], None]], Store]] = {
    "claude": lambda cls, place, context, complain: cls(place, context, complain),
    "folder": lambda cls, place, context, complain: cls(place, context, complain),
    "sqlite": lambda cls, place, context, complain: cls(place, context),
    "postgres": lambda cls, place, context, complain: cls(place, context),
    "memory": lambda cls, place, context, complain: cls(context.cwd),
}


class Sessions:
    def __init__(self, basis: Basis) -> None:
        self._basis = basis

    @cached_property
    def _options(self) -> Options:
        """The options, with the session that is meant where they name none. Raises SessionError."""
        basis = self._basis
        if not basis.options.database:
            return basis.options
        from parley.compose.single_session import with_conversation

        return with_conversation(basis.options, basis.cwd, basis.stamp.new_uuid)

    def wanted(self) -> Wanted:
        options = self._options
        return Wanted(
            session_id=options.session_id,
            resume=options.resume,
            newest=options.continue_conversation,
            fork=options.fork_session,
            steal=options.steal,
            keep=not options.no_session_persistence,
            at=options.resume_session_at,
            drops=options.resume_drops_turn,
        )

    def open(self) -> tuple[str, Log]:
        """Which session this is, and its log. Raises UsageError or SessionError."""
        wanted = self.wanted()
        store = self.store(wanted.resume)
        if wanted.resume and not store.exists(wanted.resume):
            wanted = msgspec.structs.replace(wanted, resume=self.named(wanted.resume))
            store = self.store(wanted.resume)
        opened = open_session(wanted, store, self._basis.stamp.new_uuid)
        if opened.copied is not None and wanted.keep:
            self.inherit(opened.session_id, opened.copied)
        return opened.session_id, opened.log

    def named(self, name: str) -> str:
        """The id of the session with a title; the name itself if none has it. Raises UsageError, SessionError."""
        from parley.stores.titles import titled

        return titled(name, map(self._open_store, self._chosen()), self._basis.cwd) or name

    def inherit(self, fork: str, session_id: str) -> None:
        """A fork can go back to the states of files of the session it comes from, and knows what that one knew."""
        memory.inherit(self._basis, fork, session_id)
        Checkpoints(file_history(self._basis, fork)).inherit(Checkpoints(file_history(self._basis, session_id)))

    def store(self, session_id: str | None = None) -> Store:
        """Where sessions are kept: as the options say, else in the layout that knows the session. Raises UsageError."""
        first, *others = self._chosen()
        store = self._open_store(first)
        if session_id is None or not others or store.exists(session_id):
            return store
        return next((found for found in map(self._open_store, others) if found.exists(session_id)), store)

    def _chosen(self) -> list[Chosen]:
        """The store that was named, or every layout we know. Raises UsageError."""
        options = self._basis.options
        chosen = choose(options, self._basis.environment)
        return [Chosen(name) for name in manners(options).layouts] if chosen is None else [chosen]

    def _open_store(self, chosen: Chosen) -> Store:
        """Raises UsageError."""
        basis, cls = self._basis, variety(STORES, chosen.name, "store")
        return STORE_OPENERS[chosen.name](cls, self._place(chosen), basis.line_context(), basis.complain)

    def _place(self, chosen: Chosen) -> Any:
        """A path; of an address, the address."""
        if chosen.is_address:
            return chosen.place
        basis = self._basis
        return Path(basis.cwd, os.path.expanduser(chosen.place)) if chosen.place else basis.config

    # What belongs to one session.

    def transcript_path(self, session_id: str) -> str:
        return "" if self._basis.options.no_session_persistence else self.store(session_id).path(session_id)

    def mirrored(self, session_id: str, log: Log, told: Callable[[Message], None]) -> Log:
        """The log for a session whose client wants to hear of its lines."""
        if not self._basis.options.session_mirror:
            return log
        path, is_copy = self._mirror_path(session_id), self.wanted().begins_as == "fork"
        return self._mirror(log, told, path, session_id, self._basis.line_context(), is_copy=is_copy)

    def mirrored_agent(
        self, session_id: str, agent_id: str, meta: Json | None, log: Log, told: Callable[[Message], None]
    ) -> Log:
        """The same for a subagent, whose transcript has a path of its own beside the session's."""
        if not self._basis.options.session_mirror:
            return log
        from parley.stores.files.sidechain import path_beside

        path = str(path_beside(self._mirror_path(session_id), agent_id))
        context = msgspec.structs.replace(self._basis.line_context(), agent_id=agent_id)
        head = None if meta is None else {**meta, "type": "agent_metadata"}
        return self._mirror(log, told, path, session_id, context, head=head)

    def _mirror(
        self,
        log: Log,
        told: Callable[[Message], None],
        path: str,
        session_id: str,
        context: Context,
        *,
        is_copy: bool = False,
        head: Json | None = None,
    ) -> Log:
        from parley.stores.mirror import Mirror

        return Mirror(
            log,
            told,
            path=path,
            session_id=session_id,
            context=context,
            most_bytes=line_bytes(self._basis),
            is_copy=is_copy,
            head=head,
            complain=self._basis.complain,
        )

    def _mirror_path(self, session_id: str) -> str:
        """Clients know by the path which session is meant, wherever it is kept."""
        config = self._basis.config
        layout = config / "projects" / project_key(self._basis.cwd) / f"{session_id}.jsonl"
        return str(next(config.glob(f"projects/*/{session_id}.jsonl"), layout))

    def agent_log(self, session_id: str, agent_id: str, meta: Json | None) -> Log:
        """Raises SessionError."""
        return self._agents_store(session_id).agent_log(session_id, agent_id, meta)

    def agents(self, session_id: str) -> Sequence[Agent]:
        """The subagents whose logs are kept. Raises SessionError."""
        return self._agents_store(session_id).agents(session_id)

    def _agents_store(self, session_id: str) -> Store:
        return self._nowhere if self._basis.options.no_session_persistence else self.store(session_id)

    @cached_property
    def _nowhere(self) -> Store:
        """For what is forgotten at the end."""
        from parley.stores.memory import Memory

        return Memory()

    def agent_transcript(self, session_id: str, agent_id: str) -> str:
        from parley.stores.files.sidechain import path_beside

        path = self.transcript_path(session_id)
        return str(path_beside(path, agent_id)) if path else ""
