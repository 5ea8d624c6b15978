"""Which session this is, and where its log and the logs of its agents are kept.

See also: `stores/selection.py` for the table of stores, `stores/session_open.py` for resume and fork.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from parley.compose import memory
from parley.compose.launch_context import LaunchContext, file_history, max_line_bytes
from parley.compose.registry import get_profile, load_store
from parley.compose.single_session import resolve_session
from parley.errors import SessionError, ToolError, UnknownSession
from parley.protocol.base import Json, Message
from parley.protocol.options import CliOptions
from parley.stores.base import AgentInfo, Log, Store, StoreSetup
from parley.stores.files.store import agent_path, project_key
from parley.stores.selection import StoreChoice, choose
from parley.stores.session_open import WantedSession, is_uuid, open_session
from parley.workspace.checkpoints import CheckpointStore
from parley.workspace.local import LocalFiles

if TYPE_CHECKING:
    from parley.workspace.remote.client import RemoteFiles


class SessionStores:
    """The stores of a session, opened as the options say."""

    def __init__(self, launch: LaunchContext, given: Store | None = None) -> None:
        """`given`: the store of the program that the engine runs in, instead of the one that the options name."""
        self._launch = launch
        self._given = given
        self._fork_id: str | None = None
        self._copied: str | None = None
        """The session that this one is a copy of."""

    @cached_property
    def _options(self) -> CliOptions:
        """The options, with the id of the session if they name none. Raises SessionError."""
        launch = self._launch
        if not launch.options.database:
            return launch.options
        return resolve_session(launch.options, launch.started_in, launch.clock.new_uuid)

    def open_request(self) -> WantedSession:
        options = self._options
        return WantedSession(
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
        request = self.open_request()
        store = self.store(request.resume)
        if request.resume and not store.exists(request.resume):
            request = msgspec.structs.replace(request, resume=self.find(request.resume))
            store = self.store(request.resume)
        opened = open_session(request, store, self._launch.clock.new_uuid)
        if opened.copied is not None and request.keep:
            self.inherit(opened.session_id, opened.copied)
            self._copied = opened.copied
        self._fork_id = opened.session_id if request.begins_as == "fork" else None
        return opened.session_id, opened.log

    def begin(self, old_id: str, files: LocalFiles | RemoteFiles) -> tuple[str, Log]:
        """A new session in the same process: its id and its log. Raises SessionError."""
        keep = not self._options.no_session_persistence
        opened = open_session(WantedSession(keep=keep), self.store(), self._launch.clock.new_uuid)
        if keep:
            try:
                if isinstance(files, LocalFiles):
                    files.use_history(self.inherit_checkpoints(opened.session_id, old_id))
                else:
                    files.inherit_history(opened.session_id, old_id)
            except (OSError, ToolError) as exc:
                opened.log.close()
                reason = (exc.strerror if isinstance(exc, OSError) else None) or exc
                raise SessionError(f"the file checkpoints cannot be copied: {reason}") from None
        return opened.session_id, opened.log

    def find(self, name: str) -> str:
        """The id of the session with this id, title, start of an id or first prompt. An unknown UUID is returned.

        Raises UsageError, SessionError.
        """
        from shlex import quote

        from parley.stores.session_find import explain_unknown, find_session

        stores = [self._given] if self._given else [self._open_store(chosen) for chosen in self._choose_stores()]
        found = find_session(name, stores, self._launch.cwd)
        if found is None and name.strip() and not is_uuid(name):
            is_option = name == self._launch.options.resume
            hint = f". --resume takes the argument after it. If it is the prompt: parley -p --continue {quote(name)}"
            raise UnknownSession(name, explain_unknown(name, stores) + (hint if is_option else ""))
        return found or name

    def inherit(self, fork: str, session_id: str) -> None:
        """A fork has the file checkpoints and the memory of the session it comes from."""
        memory.inherit(self._launch, fork, session_id)
        self.inherit_checkpoints(fork, session_id)

    def inherit_remote_checkpoints(self, new_id: str, files: LocalFiles | RemoteFiles) -> None:
        """In a remote workspace, a fork gets the file checkpoints when it is connected. Raises SessionError."""
        if self._copied is None or isinstance(files, LocalFiles):
            return
        try:
            files.inherit_history(new_id, self._copied)
        except (OSError, ToolError) as exc:
            raise SessionError(f"the file checkpoints cannot be copied: {exc}") from None

    def inherit_checkpoints(self, new_id: str, session_id: str) -> Path:
        """Give a new session the file checkpoints of the one it comes from; returns their folder."""
        folder = file_history(self._launch, new_id)
        CheckpointStore(folder).inherit(CheckpointStore(file_history(self._launch, session_id)))
        return folder

    def store(self, session_id: str | None = None) -> Store:
        """The store that the options name, else the layout that has the session. Raises UsageError."""
        if self._given is not None:
            return self._given
        first, *others = self._choose_stores()
        store = self._open_store(first)
        if session_id is None or not others or store.exists(session_id):
            return store
        return next((found for found in map(self._open_store, others) if found.exists(session_id)), store)

    def _choose_stores(self) -> list[StoreChoice]:
        """The store that is named, or every layout of the dialect. Raises UsageError."""
        options = self._launch.options
        chosen = choose(options, self._launch.environment)
        return [StoreChoice(name) for name in get_profile(options).layouts] if chosen is None else [chosen]

    def _open_store(self, chosen: StoreChoice) -> Store:
        """Raises UsageError."""
        launch = self._launch
        path = Path(launch.host_folder, os.path.expanduser(chosen.location)) if chosen.location else launch.config
        waits = launch.options.input_format == "stream-json"
        return load_store(chosen.name)(StoreSetup(chosen.location, path, launch.line_context(), launch.warn, waits))

    # What belongs to one session.

    def transcript_path(self, session_id: str) -> str:
        return "" if self._launch.options.no_session_persistence else self.store(session_id).path(session_id)

    def mirror_log(
        self, session_id: str, log: Log, send: Callable[[Message], None], agent_id: str = "", meta: Json | None = None
    ) -> Log:
        """The log of the session, or of a subagent, mirrored to the client if the options say so."""
        launch = self._launch
        if not launch.options.session_mirror:
            return log
        from parley.stores.mirror import MirroredLog, MirrorTarget

        path, context = self._mirror_path(session_id), launch.line_context()
        if agent_id:  # its transcript has its own path next to the session's
            path, context = str(agent_path(path, agent_id)), msgspec.structs.replace(context, agent_id=agent_id)
        target = MirrorTarget(path=path, session_id=session_id, context=context, max_bytes=max_line_bytes(launch))
        head = None if meta is None else {**meta, "type": "agent_metadata"}
        is_copy = not agent_id and session_id == self._fork_id
        return MirroredLog(log, send, target, is_copy=is_copy, head=head, warn=launch.warn)

    def _mirror_path(self, session_id: str) -> str:
        """The path by which clients recognize the session, wherever it is kept."""
        config = self._launch.config
        layout = config / "projects" / project_key(self._launch.cwd) / f"{session_id}.jsonl"
        return str(next(config.glob(f"projects/*/{session_id}.jsonl"), layout))

    def agent_log(self, session_id: str, agent_id: str, meta: Json | None) -> Log:
        """Raises SessionError."""
        return self._agents_store(session_id).agent_log(session_id, agent_id, meta)

    def agents(self, session_id: str) -> Sequence[AgentInfo]:
        """The subagents whose logs are kept. Raises SessionError."""
        return self._agents_store(session_id).agents(session_id)

    def _agents_store(self, session_id: str) -> Store:
        return self._memory_store if self._launch.options.no_session_persistence else self.store(session_id)

    @cached_property
    def _memory_store(self) -> Store:
        """For sessions that are not persisted."""
        from parley.stores.memory import MemoryStore

        return MemoryStore()

    def agent_transcript(self, session_id: str, agent_id: str) -> str:
        path = self.transcript_path(session_id)
        return str(agent_path(path, agent_id)) if path else ""
