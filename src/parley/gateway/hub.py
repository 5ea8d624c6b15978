"""All sessions of a server: create, find, list, delete, evict.

The log of each session is its only truth (`session_log/`). The database follows the logs: when the server starts, the
rows of sessions that are behind their logs are written again.

A session is loaded when a client connects to it or sends it something, and evicted when it has been idle for a while
and no client is connected. An evicted session costs nothing but its files.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from sqlite3 import Row
from typing import Any
from uuid import uuid4

import msgspec

from parley.compose.stores import SessionStores
from parley.engine.session.recover import find_interrupted_turn
from parley.errors import SessionError, UsageError, explain_os_errors
from parley.gateway.database import SessionRows, open_projections
from parley.gateway.engines import Engine, EngineStart, ProcessEngine, TaskEngine
from parley.gateway.index.indexer import Indexer
from parley.gateway.index.session_list import (
    SELECT_SESSIONS,
    SessionInfo,
    SessionListEvents,
    SessionQuery,
    describe_session,
)
from parley.gateway.live_session import LiveSession, Services
from parley.gateway.questions import QuestionInbox
from parley.gateway.refusal import Refusal
from parley.gateway.reporting import AuditLog, Metrics, ServerLog
from parley.gateway.security.access import Principal, Quotas, Scope
from parley.gateway.security.quotas import OpenConnections, Spending, TenantThreads
from parley.gateway.security.tokens import ITSELF
from parley.gateway.session_log.records import (
    AnyRecord,
    CreatedRecord,
    DeletedRecord,
    EngineStartedRecord,
    SessionState,
    TitledRecord,
    UsedRecord,
)
from parley.gateway.session_log.session_log import SessionLog
from parley.gateway.session_options import SessionRequest, choose_workspace, format_options, require
from parley.gateway.session_storage import SessionStorage
from parley.gateway.transcript import (
    CopySource,
    copy_session,
    discard_copy,
    find_missing,
    open_stores,
    open_transcript,
)
from parley.gateway.wire_log import WIRE_BYTES, WireLog
from parley.models.base import MODEL_ROOTS, find_model_file
from parley.protocol.base import Json, Struct
from parley.protocol.options import CliOptions, parse
from parley.settings.env_vars import is_truthy
from parley.settings.secret_variables import COMMANDS
from parley.stores.base import Entry, Store
from parley.stores.wire_recording import Direction
from parley.workspace import private_files
from parley.workspace.remote.address import SessionWorkspace, read_workspace

STATE_EVENTS = "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"
CHECKPOINTS = "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING"
"""Files can be rewound unless the environment of the server says otherwise."""
CONTINUES = "CLAUDE_CODE_RESUME_INTERRUPTED_TURN"
PARTIAL = "--include-partial-messages"
ASKS_CLIENTS = ("--permission-prompt-tool", "stdio", PARTIAL)
SERVER = Principal.administrator(ITSELF)
DENIAL = "The question was not answered in time."
TITLE_CHARS = 200
FILE_MODELS = ("scripted", "replay")
LEAST_COLLECTED = 100
"""Fewer unloaded sessions are not worth a collection of garbage while others run."""


class HubSettings(Struct, frozen=True, kw_only=True):
    state: Path
    """Where the gateway keeps its files."""
    root: str
    """Where sessions may work."""
    argv: tuple[str, ...] = ()
    """The options of new sessions."""
    environment: Mapping[str, str] = {}
    isolation: str = "task"
    idle_seconds: float = 300
    question_seconds: float | None = None
    audit: Path | None = None
    """The audit log; None for a file in the state folder."""
    wire_bytes: int = WIRE_BYTES
    """How much of what engines and the gateway say to each other is kept for each session."""
    shows_stored: bool = False
    """Whether the sessions of other programs below the root are shown, too (`stored_sessions.py`)."""

    @property
    def sends_states(self) -> bool:
        """Whether every client gets `session_state_changed`, as the environment says."""
        return is_truthy(self.environment.get(STATE_EVENTS))


class SessionHub:
    def __init__(
        self, settings: HubSettings, log: ServerLog | None = None, storage: SessionStorage | None = None
    ) -> None:
        """Raises SessionError."""
        self.settings = settings
        self.storage = SessionStorage() if storage is None else storage
        self.log = log or ServerLog(lambda line: None)
        refuse_older_state(settings.state)
        with explain_os_errors(f"cannot create {settings.state}"):
            settings.state.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in ("logs", "wire"):
                (settings.state / name).mkdir(mode=0o700, exist_ok=True)
        self._lock = lock_folder(settings.state)
        self.database = open_projections(settings.state / "projections.db")
        if self.storage.is_shared:
            self.database.change("PRAGMA synchronous=OFF")  # its file is not used again after a power failure
        self.rows = SessionRows(self.database)
        self.questions = QuestionInbox(self.database, settings.question_seconds)
        self.audit = AuditLog(settings.audit or settings.state / "audit.jsonl")
        self.spending = Spending(self.database)
        self.connections = OpenConnections()
        self.threads = TenantThreads()
        self.metrics = Metrics()
        self.find_quotas: Callable[[str], Quotas] = lambda name: Quotas()
        """The quotas of a token, by its name."""
        self.find_roots: Callable[[str], Sequence[str] | None] = lambda name: None
        """The roots of a token, by its name; None for an administrator."""
        self.find_secrets: Callable[[str], Mapping[str, str]] = lambda tenant: {}
        """The environment variables with the keys of a tenant. Raises UsageError."""
        self.is_draining = False
        self.stopped = asyncio.Event()
        """Set when no more lines will come: event streams end."""
        self.events = SessionListEvents()
        self.indexer = Indexer(self.database, self.rows, self.open_log, self._report_change)
        self._services = Services(
            *(self.questions, self.audit, self.spending, self.connections),
            *(self.metrics, self.log, self.indexer.mark),
        )
        self._sessions: dict[str, LiveSession] = {}
        self._unloaded = 0
        """How many sessions were unloaded since the last collection of garbage."""
        self._deleted: set[str] = set()
        """Sessions whose engines are being stopped."""
        self.elsewhere: set[str] = set()
        """Sessions that another process holds."""
        self._taken: set[str] = set()
        """Sessions whose next engine takes them from another process."""
        self._copied: set[str] = set()
        """Forks that are being copied. Their transcripts may be there before their logs."""

    def follow(self, log: SessionLog, records: Sequence[AnyRecord]) -> None:
        """Something was recorded in the log of a session: the database follows.

        The record is true whatever happens here. If the database fails, the rows are written again when the session is
        indexed, or when the server starts.
        """
        self.storage.add(log, records)
        try:
            self.rows.follow(log, records)
        except SessionError as exc:
            self.rows.behind.add(log.session_id)
            self.log.warn(f"the lists are behind the log of the session {log.session_id}: {exc}")
        if any(isinstance(record, UsedRecord) for record in records):
            self.spending.on_recorded(log.session_id)

    def _make_engine(self, live: LiveSession, start: EngineStart, chosen: SessionWorkspace | None) -> Engine:
        """Start an engine on the files of its session."""
        if chosen is not None and (engine := self.storage.make_engine(live, start, chosen)) is not None:
            return engine
        if chosen is not None and chosen.kind == "remote":
            start = msgspec.structs.replace(start, argv=(*start.argv, "--workspace", chosen.address))
        return ProcessEngine(start) if self.settings.isolation == "process" else TaskEngine(start)

    # Sessions.

    def create(self, principal: Principal, wanted: SessionRequest, checked: Sequence[str] = ()) -> LiveSession:
        """Create a session. Raises Refusal or SessionError.

        `checked`: further options of the command line, which the caller has found to be allowed.
        """
        require(principal, Scope.CREATE, "creating a session")
        self.check_draining()
        workspace = choose_workspace(wanted.workspace, self.storage.default_workspace, principal)
        if workspace is not None and workspace.kind == "remote" and wanted.cwd:
            raise Refusal("invalid_options", "cwd: the folder of a remote workspace is a part of its address")
        cwd = self.find_directory(wanted.cwd or ".", principal)
        argv = [*format_options(wanted, principal), *checked]
        self._check_models(argv, cwd, principal)
        self._check_session_quota(principal)
        session_id = self.storage.new_id()
        self.audit.write("create", principal, session=session_id, cwd=cwd)
        created = CreatedRecord(
            tenant=principal.tenant,
            creator=principal.name,
            cwd=cwd,
            options=msgspec.json.encode(argv),
            workspace=None if workspace is None else msgspec.json.encode(workspace).decode(),
            title=shorten_title(wanted.title or ""),
            at=time.time(),
        )
        return self._begin(session_id, created)

    def _begin(self, session_id: str, created: CreatedRecord) -> LiveSession:
        """Open the log of a new session. Raises SessionError."""
        self.storage.begin(session_id, created.tenant)
        log = SessionLog(self.log_path(session_id), self.follow)
        live = self._add_live(log)
        if log.state.created is None:
            log.record(created)
        else:
            self.follow(log, list(log.all_records()))  # a copy of another session
        self.indexer.mark(session_id)
        return live

    def open_stores(self, live: LiveSession, given: Store | None) -> SessionStores:
        """The stores that the options of a session name, unless one is given. Raises UsageError."""
        created = require_created(live.log.state)
        return open_stores(self._argv(created.options), self.settings.environment, created.cwd, given)

    async def fork(self, principal: Principal, session_id: str, uuid: str | None, title: str) -> LiveSession:
        """Copy a session up to a message and including it; None for all of it. Raises Refusal or SessionError.

        The copy belongs to the tenant of the session, also if an administrator makes it.
        """
        require(principal, Scope.CREATE, "forking a session")
        row = self._row(principal, session_id)
        self.check_draining()
        self.find_directory(row["cwd"], principal, may_be_away=row["workspace"] is not None)
        self._check_session_quota(principal)
        new_id, live = self.storage.new_id(session_id), self.get(principal, session_id)
        self.audit.write("fork", principal, session=new_id, source=session_id, uuid=uuid)
        created = require_created(live.log.state)
        stores = self.open_stores(live, self.storage.begin_copy(session_id, new_id))
        source = CopySource(stores, live.log, live.engine_id, live.log.last)
        path = self.log_path(new_id)
        new_title = shorten_title(title or (f"{row['title']} (fork)" if row["title"] else ""))
        first = msgspec.structs.replace(created, creator=principal.name, title=new_title, at=time.time())
        self._copied.add(new_id)
        try:
            await self.threads.run(principal.tenant, partial(copy_session, source, new_id, path, first, uuid))
            try:
                self._check_session_quota(principal)  # others were created meanwhile
                copy = self._begin(new_id, first)
            except BaseException:
                discard_copy(stores, new_id, path)
                raise
        finally:
            self._copied.discard(new_id)
        await self.storage.wait_stored(copy.id)
        return copy

    def get(self, principal: Principal, session_id: str) -> LiveSession:
        """A session, if the principal may see it. Its engine does not have to run. Raises Refusal or SessionError."""
        self._row(principal, session_id)
        live = self._sessions.get(session_id)
        return self._add_live(SessionLog(self.log_path(session_id), self.follow)) if live is None else live

    def _add_live(self, log: SessionLog) -> LiveSession:
        wire = WireLog(self.settings.state / "wire" / log.session_id, self.settings.wire_bytes)
        live = LiveSession(log, wire, self._services, self._load, self._admit, self.find_directory)
        self._sessions[live.id] = live
        return live

    def find_sessions(self, principal: Principal, query: SessionQuery) -> tuple[list[SessionInfo], int]:
        """The sessions that a principal may see and that match, the last used first; how many without the limit."""
        self.indexer.index_marked()
        found = self.indexer.search.find(principal, query.search) if query.search else {}
        running = {live.id: live.state for live in self._sessions.values() if live.engine is not None}
        where, values = query.condition(principal, found, running if query.states else {})
        rows = self.database.rows(
            f"{SELECT_SESSIONS} WHERE {where} ORDER BY used_at DESC, id LIMIT ? OFFSET ?",
            *(*values, query.limit, query.offset),
        )
        count = self.database.row(f"SELECT count(*) AS n FROM sessions WHERE {where}", *values)
        infos = [self._describe(row, found.get(row["id"])) for row in rows]
        return infos, 0 if count is None else count["n"]

    def describe(self, principal: Principal, session_id: str) -> SessionInfo:
        """Raises Refusal."""
        self.indexer.index_marked()
        return self._describe(self._row(principal, session_id))

    def _describe(self, row: Row, match: str | None = None) -> SessionInfo:
        return describe_session(row, self._sessions.get(row["id"]), match, is_elsewhere=row["id"] in self.elsewhere)

    def _report_change(self, session_id: str) -> None:
        """Tell those who watch the list of sessions."""
        if self.events.has_watchers and (row := self._find_row(session_id)) is not None:
            self.events.report(row["tenant"], self._describe(row))

    @contextmanager
    def open_log(self, session_id: str) -> Iterator[SessionLog]:
        """The log of a session, whether it is live or not. Raises SessionError."""
        live = self._sessions.get(session_id)
        if live is not None:
            yield live.log
            return
        stored = SessionLog(self.log_path(session_id))
        try:
            yield stored
        finally:
            stored.close()

    def find_live(self, session_id: str) -> LiveSession | None:
        """The session, if it is in use."""
        return self._sessions.get(session_id)

    def has_row(self, session_id: str) -> bool:
        return self.database.row("SELECT 1 FROM sessions WHERE id=?", session_id) is not None

    def list_ids(self) -> list[str]:
        """All sessions of which the database has something."""
        return [row["id"] for row in self.database.rows("SELECT id FROM sessions")]

    def stored_bytes(self, session_id: str) -> int:
        """How long the lines of a session are."""
        if not self.log_path(session_id).exists():
            return 0
        with self.open_log(session_id) as log:
            return log.state.line_bytes

    def first_prompt(self, session_id: str) -> str | None:
        """The first prompt of a session that has no result."""
        live = self.find_live(session_id)  # one that is busy is not evicted
        return None if live is None else next(iter(live.log.state.open_prompts), None)

    def has_work(self, session_id: str) -> bool:
        """Whether a session has a turn that runs or waits to run, or an open question."""
        row = self.database.row(
            "SELECT open_prompts > 0 OR EXISTS (SELECT 1 FROM questions WHERE session=id AND state='open') AS is_busy"
            " FROM sessions WHERE id=?",
            session_id,
        )
        live = self.find_live(session_id)
        return bool(row is not None and row["is_busy"]) or (live is not None and live.state != "idle")

    def adopt(self, log: SessionLog) -> LiveSession:
        """Take a session over that another host may have run. Raises SessionError."""
        self.rows.restore(log, is_spent_here=False)
        self.indexer.reindex(log.session_id)
        self.indexer.mark(log.session_id)
        return self._add_live(log)

    def drop(self, session_id: str) -> LiveSession | None:
        """Forget a session without a word to anybody: its connections end, its engine says nothing more."""
        live = self._sessions.pop(session_id, None)
        if live is not None:
            self._unloaded += 1
            if live.engine is not None:
                live.engine.silence()
            for client in list(live.clients):
                live.detach(client)
            live.log.close()
            live.wire.remove()
        return live

    def may_see(self, principal: Principal, session_id: str) -> bool:
        row = self.database.row("SELECT tenant FROM sessions WHERE id=?", session_id)
        return row is not None and principal.may_see(row["tenant"])

    def rename(self, principal: Principal, session_id: str, title: str) -> str:
        """Change the title of a session; returns it as it is stored. Raises Refusal."""
        require(principal, Scope.PROMPT, "renaming a session")
        self._row(principal, session_id)
        title = shorten_title(title)
        if not title:
            raise Refusal("invalid_body", "a title must not be empty")
        self.audit.write("rename", principal, session=session_id)
        self.get(principal, session_id).log.record(TitledRecord(title=title))
        self.indexer.mark(session_id)
        return title

    def session_argv(self, session_id: str) -> tuple[str, ...]:
        """The options of a session, with the defaults of the server."""
        row = self.database.row("SELECT options FROM sessions WHERE id=?", session_id)
        return self.settings.argv if row is None else self._argv(row["options"])

    def sends_partial(self, session_id: str) -> bool:
        """Whether clients of a session get stream events unless they say otherwise."""
        return PARTIAL in self.session_argv(session_id)

    async def delete(self, principal: Principal, session_id: str) -> None:
        """Stop a session and forget it. Its transcript stays in the store. Raises Refusal."""
        require(principal, Scope.CREATE, "deleting a session")
        tenant = self._row(principal, session_id)["tenant"]
        self.audit.write("delete", principal, session=session_id)
        live = self.get(principal, session_id)
        self._deleted.add(session_id)
        try:
            if live.engine is not None:
                live.engine.stop()
                await live.engine.close()
            await self.indexer.catch_up(session_id)
            title, turns = self.indexer.turns.figures(session_id)
            live.log.record(DeletedRecord(title=title, turns=turns))
        finally:
            self._deleted.discard(session_id)
        self.bury(live.log)
        if self.settings.shows_stored:  # nothing of it is shown again as a session of another program
            for engine_id in live.log.state.engine_ids:
                SessionLog(self.log_path(engine_id)).close()
        live.wire.remove()
        self._sessions.pop(session_id, None)
        for client in list(live.clients):
            live.detach(client)
        live.drop_replies()
        self.events.report_deleted(tenant, session_id)
        await self.storage.on_deleted(session_id)

    def bury(self, log: SessionLog) -> None:
        """Replace the log of a deleted session by one that has only what it has cost. Raises SessionError."""
        if self.storage.is_shared:
            log.remove()
            return
        state = log.state
        log.close()
        if state.created is None or state.deleted is None:
            return
        grave = self.log_path(log.session_id).with_suffix(".new")
        with closing(SessionLog(grave)) as kept:
            used = UsedRecord(tokens=state.spent_tokens, usd=state.spent_usd, total_tokens=0, total_usd=0.0)
            created = msgspec.structs.replace(state.created, cwd="", options=b"[]", workspace=None, title="")
            kept.record(created, used, state.deleted)
        private_files.rename(grave, self.log_path(log.session_id).name)

    def _row(self, principal: Principal, session_id: str) -> Row:
        """Raises Refusal. A session of another tenant is as unknown as one that does not exist."""
        row = self._find_row(session_id)
        if row is None or not principal.may_see(row["tenant"]) or session_id in self._deleted:
            raise Refusal("unknown_session", f"there is no session {session_id!r}")
        return row

    def _find_row(self, session_id: str) -> Row | None:
        return self.database.row(f"{SELECT_SESSIONS} WHERE id=?", session_id)

    def _argv(self, options: bytes) -> tuple[str, ...]:
        return (*self.settings.argv, *msgspec.json.decode(options, type=list[str]))

    def log_path(self, session_id: str) -> Path:
        return self.settings.state / "logs" / f"{session_id}.log"

    def find_directory(self, given: str, principal: Principal, *, may_be_away: bool = False) -> str:
        """Where a new session works, without symbolic links. Raises Refusal.

        `may_be_away`: the directory may be on another machine.
        """
        if "\0" in given:
            raise Refusal("unknown_directory", f"there is no directory {given!r}")
        path = os.path.realpath(os.path.join(self.settings.root, given))
        roots = [os.path.join(self.settings.root, each) for each in principal.roots] or [self.settings.root]
        if not (is_below(path, [self.settings.root]) and is_below(path, roots)):
            raise Refusal("outside_roots", f"the directory {given!r} is outside the roots that the token allows")
        if not may_be_away and not os.path.isdir(path):
            raise Refusal("unknown_directory", f"there is no directory {given!r}")
        return path

    def _model_roots(self, roots: Sequence[str] | None, cwd: str) -> dict[str, str]:
        """The variable that says where the model files of a session may be.

        That of the operator and the directory of the session are always allowed.
        """
        if roots is None:
            return {}
        own = [find_file_name(name) for name in model_names(parse(self.settings.argv).options)]
        folders = [os.path.join(self.settings.root, each) for each in (*roots, cwd, *filter(None, own))]
        return {MODEL_ROOTS: msgspec.json.encode(list(map(os.fsencode, folders))).decode()}

    def _check_models(self, argv: Sequence[str], cwd: str, principal: Principal) -> None:
        """Raises Refusal if a session would play a file that its creator cannot name."""
        roots = None if principal.may(Scope.ADMIN) else principal.roots or ("",)
        for name in model_names(parse(argv).options):
            try:
                find_model_file(cwd, find_file_name(name) or ".", self._model_roots(roots, cwd))
            except UsageError as exc:
                raise Refusal("outside_roots", str(exc)) from None

    def _check_session_quota(self, principal: Principal) -> None:
        self.storage.check_session(principal)
        most = principal.quotas.sessions
        if most is None:
            return
        row = self.database.row("SELECT count(*) AS n FROM sessions WHERE creator=?", principal.name)
        if row is not None and row["n"] >= most:
            raise Refusal("quota_exceeded", f"the token {principal.name!r} has reached its limit of {most} sessions")

    def _admit(self, live: LiveSession, joins_turn: bool) -> None:
        """Raises Refusal or SessionError if a session may not ask a model now.

        `joins_turn`: in the turn that runs, if there is one.
        """
        self.check_draining()
        self._check_current(live)
        created = require_created(live.log.state)
        creator, quotas = created.creator, self.find_quotas(created.creator)
        self.spending.check(creator, quotas)
        if quotas.concurrent_turns is not None and not (joins_turn and live.has_turn):
            busy = self.database.row("SELECT count(*) AS n FROM sessions WHERE creator=? AND open_prompts > 0", creator)
            asking = [one for one in self._sessions.values() if one.side_requests]
            aside = sum(one.side_requests for one in asking if require_created(one.log.state).creator == creator)
            if aside + (0 if busy is None else busy["n"]) >= quotas.concurrent_turns:
                text = f"the token {creator!r} has reached its limit of {quotas.concurrent_turns} turns at a time"
                raise Refusal("quota_exceeded", text)
        self.storage.check_turn(live, created, quotas)

    def _check_current(self, live: LiveSession) -> None:
        """Raises SessionError if a session was unloaded while something for it arrived, Refusal if it is deleted."""
        if live.id in self._deleted:
            raise Refusal("unknown_session", f"there is no session {live.id!r}")
        if self._sessions.get(live.id) is not live:
            raise SessionError("the session was unloaded meanwhile; send this again")

    def check_draining(self) -> None:
        """Raises Refusal."""
        if self.is_draining:
            raise Refusal("shutting_down", "the server is shutting down; connect again to continue")

    # Sessions of other processes.

    def add_stored(self, session_id: str) -> None:
        """A session has got a log that was written from its transcript. Raises SessionError."""
        with closing(SessionLog(self.log_path(session_id))) as log:
            self.follow(log, list(log.all_records()))
        self.indexer.mark(session_id)

    def find_engine_ids(self) -> dict[str, str | None]:
        """Of sessions with another id in the engine: by each of their ids, the session if its engine uses the id now.

        None for an id of an earlier conversation, and for the id of a fork that is being copied.
        """
        found: dict[str, str | None] = dict.fromkeys(self._copied)
        for row in self.database.rows("SELECT id, engine_ids FROM sessions WHERE engine_ids != '[]'"):
            *earlier, now = msgspec.json.decode(row["engine_ids"], type=list[str])
            found |= {row["id"]: None, **dict.fromkeys(earlier), now: row["id"]}
        return found

    def set_elsewhere(self, session_id: str, *, is_elsewhere: bool) -> None:
        """Another process holds a session, or no longer does."""
        if is_elsewhere != (session_id in self.elsewhere):
            (self.elsewhere.add if is_elsewhere else self.elsewhere.discard)(session_id)
            self._report_change(session_id)

    def take(self, principal: Principal, session_id: str) -> None:
        """Let a session run here. A process that holds it can no longer write. Raises Refusal, SessionError."""
        require(principal, Scope.PROMPT, "taking a session over")
        live = self.get(principal, session_id)
        self.audit.write("take", principal, session=session_id)
        if live.engine is None:
            self._taken.add(session_id)  # also if nobody has noticed yet that another process holds it
        try:
            live.ensure_loaded()
        finally:
            self._taken.discard(session_id)
        self.set_elsewhere(session_id, is_elsewhere=False)

    async def release(self, principal: Principal, session_id: str) -> None:
        """End the engine of a session, so that another process can continue it. Raises Refusal."""
        require(principal, Scope.PROMPT, "giving a session back")
        live = self.get(principal, session_id)
        if live.is_busy:
            raise Refusal("session_busy", "the session works or waits for an answer; interrupt it first")
        self.audit.write("release", principal, session=session_id)
        if live.engine is not None:
            await live.unload(live.engine)

    # Engines.

    def _load(self, live: LiveSession) -> Engine:
        """Start the engine of a session, and let it continue where an earlier one was killed. Raises SessionError."""
        self.check_draining()
        self._check_current(live)
        if live.id not in self._taken and self._is_elsewhere(live):
            raise Refusal("session_busy", "another process runs the session: watch it, or take it over")
        self.storage.check_load(live.id)
        created = require_created(live.log.state)
        start = EngineStart(
            argv=self._argv(created.options),
            cwd=created.cwd,
            environment={
                CHECKPOINTS: "1",
                COMMANDS: "",  # a server has variables that are not meant for its users
                **self.settings.environment,
                **self.find_secrets(created.tenant),
                STATE_EVENTS: "1",
                **({CONTINUES: "1"} if self.storage.is_shared else {}),
                **self._model_roots(self.find_roots(created.creator), created.cwd),
            },
            on_lines=live.on_lines,
            on_input=partial(live.wire.add, Direction.IN),
            on_end=live.on_end,
            store=self.storage.engine_store(live.id),
        )
        is_stored, unsent = self._restore(live, start)
        which = ("--resume" if is_stored else "--session-id", live.engine_id)
        steal = ("--steal",) if live.id in self._taken else ()
        start = msgspec.structs.replace(
            start, argv=(*start.argv, *ASKS_CLIENTS, *self.storage.engine_argv, *steal, *which)
        )
        engine = self._make_engine(live, start, read_workspace(created.workspace))
        self.metrics.count("parley_engine_starts_total")
        self.log.note("engine_start", session=live.id)
        live.log.record(EngineStartedRecord(at=time.time()))
        declared = live.log.state.declared
        if is_stored or declared is not None:
            request = {"subtype": "initialize"} if declared is None else msgspec.json.decode(declared.request)
            first = {"type": "control_request", "request_id": f"load-{uuid4()}", "request": request}
            engine.write(msgspec.json.encode(first) + b"\n")
        for line in unsent:
            engine.write(line + b"\n")
        return engine

    def _is_elsewhere(self, live: LiveSession) -> bool:
        """Whether another process holds a session that does not run here. Raises UsageError."""
        if self.settings.shows_stored:
            store = self.open_stores(live, None).store(live.engine_id)
            self.set_elsewhere(live.id, is_elsewhere=store.is_held(live.engine_id))
        return live.id in self.elsewhere

    def _restore(self, live: LiveSession, start: EngineStart) -> tuple[bool, Sequence[bytes]]:
        """Whether the session has a transcript, and the prompts that are not in it.

        If the last engine was killed, the messages that it did not send are published now, and the turn that it
        cannot continue is ended. So are the messages that another program has stored.
        """
        entries = open_transcript(start, live.engine_id)
        if not (live.log.state.is_loaded or live.log.state.open_prompts or self.settings.shows_stored):
            return entries is not None, ()
        stored = [] if entries is None else list(entries)
        for line, at in find_missing(iter(stored), live.log):
            live.publish_missing(line, at)
        known = {
            uuid
            for entry in stored
            for uuid in (entry.message.get("uuid"), *(entry.message.get("user_message_uuids") or ()))
        }
        started = [uuid for uuid in live.log.state.open_prompts if uuid in known]
        if self.storage.is_shared:
            turn = find_interrupted_turn(stored)
            started = [uuid for uuid in started if turn is None or uuid not in turn.prompts]
        if started and not waits_for_answer(stored):
            live.fail_prompts("the server stopped during this turn", started)
        prompts = live.log.state.prompts
        unsent = [live.log.line(prompts[uuid].line) for uuid in live.log.state.open_prompts if uuid not in known]
        return entries is not None, unsent

    def load_interrupted(self, report: Callable[[str], None]) -> None:
        """Load the sessions with unfinished prompts, so that they run or end. The server was stopped or killed."""
        for row in self.database.rows("SELECT id FROM sessions WHERE open_prompts > 0"):
            try:
                self.get(SERVER, row["id"]).ensure_loaded()
            except (Refusal, SessionError, UsageError) as exc:
                report(f"cannot load the session {row['id']}: {exc}")

    def catch_up(self, report: Callable[[str], None]) -> None:
        """Bring the database up with the logs: a server was killed, or the database is new or was deleted.

        Nothing that the database has is needed for this. Whatever it has of other sessions is removed.
        """
        stored = {row["id"]: row["log_bytes"] for row in self.database.rows("SELECT id, log_bytes FROM sessions")}
        for path in sorted((self.settings.state / "logs").iterdir()):
            if path.suffix != ".log":
                path.unlink()  # a copy or a grave that was being written
                continue
            if stored.pop(path.stem, None) == path.stat().st_size:
                continue
            try:
                with closing(SessionLog(path)) as log:
                    self.rows.restore(log)
                    if log.state.deleted is not None and log.last:
                        self.bury(log)  # the process died before
                self.indexer.index_all(path.stem)
            except SessionError as exc:
                report(f"cannot read the log of the session {path.stem}: {exc}")
        for session_id in stored:
            self.rows.forget(session_id)

    async def evict_idle(self) -> None:
        """Unload sessions that are not used."""
        self._collect_unloaded()
        now = time.monotonic()
        idle = [
            live
            for live in self._sessions.values()
            if not live.clients and now - live.used_at > self.settings.idle_seconds
            if live.state == "idle" and not live.is_busy
        ]
        await asyncio.gather(*(live.unload(live.engine) for live in idle if live.engine is not None))
        for live in idle:
            if not live.clients and live.engine is None and self._sessions.get(live.id) is live:
                del self._sessions[live.id]
                self._unloaded += 1
                live.drop_replies()
                self._save_size(live.log)
                live.log.close()
                live.wire.flush()

    def _save_size(self, log: SessionLog) -> None:
        """Note how much of a log the database follows, once everything of it is indexed."""
        if log.session_id not in self.rows.behind:
            self.database.change(
                "UPDATE sessions SET log_bytes=? WHERE id=? AND indexed_lines=?",
                *(log.size_bytes, log.session_id, log.last),
            )

    def _collect_unloaded(self) -> None:
        """Free the memory of unloaded sessions, whose parts refer to each other.

        A full collection holds up all sessions: it is done when as many were unloaded as there are, or when none is.
        """
        if self._unloaded >= max(LEAST_COLLECTED, len(self._sessions)) or (self._unloaded and not self._sessions):
            self._unloaded = 0
            gc.collect()

    async def expire_questions(self) -> None:
        """Deny the questions that have expired. Raises what the last one failed with."""
        problem: Exception | None = None
        for question in self.questions.list_expired():
            denial: Json = {"behavior": "deny", "message": DENIAL}
            if question.kind != "can_use_tool":
                denial = {"action": "cancel"}
            response = {"subtype": "success", "request_id": question.request_id, "response": denial}
            line = msgspec.json.encode({"type": "control_response", "response": response})
            try:
                self.get(SERVER, question.session).expire(question.request_id, line)
            except (Refusal, SessionError, UsageError) as exc:
                problem = exc
        if problem is not None:
            raise problem

    async def drain(self, seconds: float) -> None:
        """Stop: no new turns, running ones get time to finish. A session that waits for an answer stays as it is."""
        self.is_draining = True
        loaded = [live for live in self._sessions.values() if live.engine is not None]
        for live in loaded:
            live.announce_shutdown()
        deadline = time.monotonic() + seconds
        while any(live.is_busy and live.state != "requires_action" for live in loaded):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.05)
        await asyncio.gather(*(self._end(live) for live in loaded))
        self.stopped.set()

    async def _end(self, live: LiveSession) -> None:
        engine = live.engine
        if engine is None:
            return
        if live.state == "requires_action":
            await engine.kill()
        else:
            engine.stop()
            await engine.close()

    def gauges(self) -> list[tuple[str, str, float]]:
        """What `/metrics` shows of the present."""
        live = self._sessions.values()
        loaded = [one for one in live if one.engine is not None]
        stored = self.database.row("SELECT count(*) AS n FROM sessions")
        waiting = self.database.row("SELECT count(*) AS n FROM questions WHERE state='open'")
        return [
            ("parley_sessions", "Sessions stored.", stored["n"] if stored else 0),
            ("parley_sessions_loaded", "Sessions whose engine is running.", len(loaded)),
            ("parley_turns_running", "Sessions with a running turn.", sum(one.state != "idle" for one in loaded)),
            ("parley_clients", "Connected clients.", sum(len(one.clients) for one in live)),
            ("parley_loop_lag_p99_seconds", "Delay of the event loop, 99th percentile.", self.metrics.lag(0.99)),
            ("parley_questions_open", "Questions without an answer.", waiting["n"] if waiting else 0),
        ]

    def close(self) -> None:
        self.threads.close()
        self.indexer.close()
        self.audit.close()
        for live in self._sessions.values():
            live.wire.flush()
            self._save_size(live.log)
            live.log.close()
        self.database.close()
        os.close(self._lock)


def lock_folder(folder: Path) -> int:
    """A descriptor that keeps other servers out for as long as it is open. Raises SessionError."""
    path = folder / "lock"
    with explain_os_errors(f"cannot open {path}"):
        descriptor = private_files.open_file(path, os.O_RDWR | os.O_CREAT)
    if not private_files.lock(descriptor, timeout_seconds=0):
        os.close(descriptor)
        raise SessionError(f"another server uses {folder}; stop it, or use another --state")
    return descriptor


def refuse_older_state(folder: Path) -> None:
    """Raises SessionError. What an unreleased version has left is not read and not changed."""
    if (folder / "gateway.db").exists():
        text = "has the state of an older version, which this Parley does not read"
        raise SessionError(f"{folder} {text}; use another --state")


def require_created(state: SessionState) -> CreatedRecord:
    """The first record of a session. Raises Refusal if it is deleted."""
    if state.created is None or state.deleted is not None:
        raise Refusal("unknown_session", "there is no such session any more")
    return state.created


def is_below(path: str, roots: Iterable[str]) -> bool:
    """Whether a path without links is in one of the folders."""
    folders = map(os.path.realpath, roots)
    return any(path == folder or path.startswith(os.path.join(folder, "")) for folder in folders)


def shorten_title(title: str) -> str:
    """A title in one line, with a limit of its length."""
    return " ".join(title[: 10 * TITLE_CHARS].split())[:TITLE_CHARS]


def model_names(options: CliOptions) -> list[str]:
    """The models that the options of a session name."""
    return [name for name in (options.model, *(options.fallback_model or "").split(",")) if name]


def find_file_name(model: str) -> str:
    """The file that a fake model plays; empty if it plays none."""
    adapter, _, rest = model.partition(":")
    return rest if adapter in FILE_MODELS and not rest.startswith("{") else ""


def waits_for_answer(entries: Sequence[Entry]) -> bool:
    """Whether the last turn of a transcript waits for an answer, so that a resumed engine continues it."""
    open_ids: set[Any] = set()
    for entry in entries:
        if entry.kind == "question":
            open_ids.add(entry.message.get("request_id"))
        elif entry.kind == "answered":
            open_ids.discard(entry.message.get("request_id"))
        elif entry.kind == "result":
            open_ids.clear()
    return bool(open_ids)
