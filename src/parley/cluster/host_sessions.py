"""The sessions that a host has loaded: those of the shards that it owns.

    async with sessions.use(key) as session:      loads it if need be; it is not evicted meanwhile
        ...                                       call the application of the host
        await session.writer.wait_committed(session.writer.position)

What a session says leaves the host only after `wait_committed` of the position at which it was said. To load a session:
read its log, append an `owner` record, fill the files of the hub, continue what was interrupted. A session whose lease
is lost or whose log has another owner is killed: its engine ends without a word, and its streams close as "moved".

See also: `shards.py` for who owns what, `session_summaries.py` for what others see of a session.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from contextvars import ContextVar
from pathlib import Path
from uuid import uuid4

import msgspec

from parley.cluster.base import Cluster, ClusterError, Fenced, LeaseLost, LogDamaged, LogKey, Snapshot
from parley.cluster.session_log import (
    EngineStore,
    LoadedLog,
    RecordBatch,
    SessionWriter,
    WriterSetup,
    encode_batch,
    encode_snapshot,
    read_log,
)
from parley.cluster.session_summaries import Summaries
from parley.cluster.session_workspaces import SessionWorkspaces
from parley.cluster.shards import ShardKeeper
from parley.cluster.takeovers import HostsFailed, Takeovers
from parley.cluster.tenants import TenantLimits
from parley.engine.session.recover import find_interrupted_turn
from parley.errors import SessionError, UsageError
from parley.gateway.engines import Engine, EngineStart
from parley.gateway.hub import SERVER, HubSettings, SessionHub
from parley.gateway.live_session import LiveSession
from parley.gateway.refusal import Refusal
from parley.gateway.reporting import ServerLog
from parley.gateway.security.access import Principal, Quotas
from parley.gateway.session_log.records import (
    AnyRecord,
    CommandRecord,
    CreatedRecord,
    EngineEndedRecord,
    LineRecord,
    NewerVersion,
    OwnerRecord,
    SessionState,
    StateRecord,
    encode_records,
)
from parley.gateway.session_log.session_log import Follower, SessionLog
from parley.gateway.session_storage import SessionStorage
from parley.stores.base import Entry
from parley.workspace.remote.address import SessionWorkspace

MOVED = "moved"
"""Another host runs the session, or will soon: gateways ask again."""
DELETED = "deleted"
SNAPSHOT_MESSAGES = 256
"""A snapshot is written after this many messages, when the session is idle."""
EVICTED_MESSAGES = 32
"""The same when a session is unloaded."""
TOMBSTONE_SECONDS = 120
"""How long the log of a deleted session is kept for requests that are repeated."""
LOOK_THROUGH_SECONDS = 2.0
"""How long after a shard was taken its other sessions are looked through."""
LOOK_THROUGH_PAUSE_SECONDS = 0.05
TRIES = 5
END_SECONDS = 5.0
"""How long an engine has to end that was killed."""
NEW_SESSION_ID: ContextVar[str] = ContextVar("new_session_id", default="")
"""The id of the session that the current request creates. Its shard is the one that the request was sent to."""


class NotOwner(ClusterError):
    """The shard of a session is not this host's."""


class HostedSession:
    """A session that this host has loaded."""

    def __init__(self, key: LogKey, shard: int, hub: SessionHub, loaded: LoadedLog) -> None:
        self.key = key
        self.shard = shard
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Gets the reason, MOVED or DELETED, when the session must not be used any more. Its streams end."""
        self.users = 0
        self.used_at = time.monotonic()
        self.tail = loaded.tail
        """How many messages the log had after its snapshot."""
        self.exists = loaded.state.exists
        self.state = loaded.state
        """Of which the transcripts and the commands are kept up; the log of the hub has the rest."""
        self._hub = hub
        self.writer: SessionWriter
        self.store: EngineStore

    @property
    def live(self) -> LiveSession | None:
        """None if the session does not exist (yet): a request may create it, with the id of the key."""
        return self._hub.get(SERVER, self.key.session) if self.exists else None

    async def wait_committed(self) -> None:
        """Wait until everything that has happened so far is in the log."""
        await self.writer.wait_committed(self.writer.position)

    def record_command(self, command_id: str, reply: bytes) -> None:
        """Remember the reply. With `writer.hold()` around the command, both are committed together."""
        record = CommandRecord(id=command_id, reply=reply)
        self.writer.add(record)
        self.state.apply(record)


class HostSessions(SessionStorage):
    is_shared = True
    engine_argv: tuple[str, ...] = ("--fsync", "turn")  # an effect waits for the log, and so does a result

    def __init__(self, cluster: Cluster, host: str, leases: ShardKeeper, settings: HubSettings, log: ServerLog) -> None:
        """Raises SessionError. The state folder of the settings must be empty."""
        self._cluster = cluster
        self._host = host
        self._leases = leases
        self._log = log
        self._idle_seconds = settings.idle_seconds
        self.hub = SessionHub(settings, log, self)
        self.life = uuid4().hex
        self.summaries = Summaries(cluster.registry, host, self.life, leases.count, self.hub)
        self.takeovers = Takeovers(cluster.registry, self.life, leases.count)
        self.limits: TenantLimits
        """What tenants and tokens may use in the whole cluster."""
        self.workspaces: SessionWorkspaces
        """Where the files of sessions are."""
        self.unreadable: dict[LogKey, str] = {}
        """The sessions whose logs are damaged, or that only a newer host can run, and why."""
        self._hosted: dict[LogKey, HostedSession] = {}
        self._by_id: dict[str, HostedSession] = {}
        self._by_shard: dict[int, set[HostedSession]] = {}
        self._busy: dict[LogKey, asyncio.Task[HostedSession | None]] = {}
        """The sessions that are being loaded or unloaded."""
        self._due: set[LogKey] = set()
        """The sessions that may have something to do and are not loaded: they were killed, or could not be loaded."""
        self._copies: dict[str, list[AnyRecord]] = {}
        """What was written to the transcripts of copies, until their sessions exist."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._tombstones: list[tuple[float, LogKey]] = []
        self._is_closed = False
        self._loop = asyncio.get_running_loop()

    def __iter__(self) -> Iterator[HostedSession]:
        return iter(list(self._hosted.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    def in_shard(self, shard: int) -> list[HostedSession]:
        return list(self._by_shard.get(shard, ()))

    def is_busy(self, shard: int) -> bool:
        """Whether a turn of the shard runs that does not wait for an answer."""
        for hosted in self.in_shard(shard):
            live = self.hub.find_live(hosted.key.session)
            if (
                live is not None
                and live.is_busy
                and live.state != "requires_action"
                and not self.workspaces.is_waiting(live)
            ):
                return True
        return False

    # Use.

    @asynccontextmanager
    async def use(self, key: LogKey) -> AsyncIterator[HostedSession]:
        """Load a session. Raises NotOwner if its shard is not this host's, NewerVersion, LogDamaged, ClusterError."""
        hosted = await self.open(key)
        hosted.users += 1
        try:
            yield hosted
        finally:
            hosted.users -= 1
            hosted.used_at = time.monotonic()
            if not hosted.exists and not hosted.users and hosted.writer.position == 0:
                self._forget(hosted)  # it was never created
                hosted.writer.fail(NotOwner("the session does not exist"))

    async def open(self, key: LogKey) -> HostedSession:
        """The same without the promise that it stays."""
        while True:
            task = self._busy.get(key)
            if task is None:
                hosted = self._hosted.get(key)
                if hosted is not None:
                    return hosted
                task = self._begin(key, self._load(key))
            found = await asyncio.shield(task)
            if found is not None and not found.closed.done():
                return found

    def _begin(
        self, key: LogKey, work: Coroutine[None, None, HostedSession | None]
    ) -> asyncio.Task[HostedSession | None]:
        async def run() -> HostedSession | None:
            try:
                return await work
            finally:
                del self._busy[key]  # here, and not in a callback: who waits for the task must find it gone

        task = self._busy[key] = self._loop.create_task(run())
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # those who wait for it have it
        return task

    # Load.

    async def _load(self, key: LogKey) -> HostedSession:
        shard = key.shard(self._leases.count)
        epoch = self._leases.epoch(shard)
        if epoch is None or not self._leases.may_act(shard, epoch):
            raise NotOwner(f"shard {shard} of session {key.session} is not run by host {self._host}")
        try:
            deadly = await self.takeovers.begin(key)
            if self.takeovers.has(key):
                self.summaries.keep_work(key)
            hosted = await self._load_owned(key, shard, OwnerRecord(host=self._host, epoch=epoch))
            if hosted.exists:
                prompt = self.hub.first_prompt(key.session)
                if deadly is not None and prompt == deadly:
                    await self._stop(hosted)
                else:
                    await self.takeovers.loaded(key, prompt)
                    self._continue(hosted)
                self.unreadable.pop(key, None)
        except SessionError as exc:
            if not isinstance(exc, HostsFailed):  # this host lives: it did not die of the session
                await self.takeovers.abandon(key)
            if (half_loaded := self._hosted.get(key)) is not None:
                self.kill(half_loaded)  # its work has not been continued: load it again
            if isinstance(exc, NewerVersion | LogDamaged | HostsFailed):
                if key not in self.unreadable:
                    self._log.warn(f"the session {key.session} is left alone: {exc}")
                self.unreadable[key] = str(exc)
                if isinstance(exc, NewerVersion):
                    self._leases.unreadable.add(shard)
            raise
        return hosted

    async def _load_owned(self, key: LogKey, shard: int, owner: OwnerRecord) -> HostedSession:
        loaded, head = await self._take(key, owner)
        state = loaded.state
        if state.created is not None:
            await self.workspaces.look_for(state.created.workspace)
        if not self._leases.may_act(shard, owner.epoch):
            raise NotOwner(f"shard {shard} of session {key.session} was lost by host {self._host}")
        if state.deleted is not None:
            self._tombstones.append((time.monotonic() + TOMBSTONE_SECONDS, key))
        hosted = HostedSession(key, shard, self.hub, loaded)
        self._start(hosted, head, owner.epoch, None if hosted.exists else owner)
        if hosted.exists:
            self.hub.adopt(write_log(self.hub.log_path(key.session), loaded, self.hub.follow))
        return hosted

    async def _stop(self, hosted: HostedSession) -> None:
        """Answer the prompts of a session that hosts died of with an error. Raises ClusterError."""
        reason = await self.takeovers.stop(hosted.key)
        self._log.warn(reason)
        live = self.hub.get(SERVER, hosted.key.session)
        live.questions.withdraw_all(live.log)
        live.fail_prompts(reason)
        # The transcript gets the result, too: no later engine continues the turn.
        line = live.log.line(live.log.last)
        for session, transcript in hosted.store.transcripts.items():
            if find_interrupted_turn(transcript.entries) is not None:
                last = transcript.entries[-1]
                entry = Entry(seq=last.seq + 1, kind="result", at=last.at, message=msgspec.json.decode(line))
                hosted.store.append(session, "", entry)

    async def _take(self, key: LogKey, owner: OwnerRecord) -> tuple[LoadedLog, int]:
        """The log of a session, and the last message, which is ours. A session that does not exist stays so."""
        log = self._cluster.log
        for _ in range(TRIES):
            loaded = await read_log(log, key)
            if not loaded.state.exists:
                return loaded, loaded.sequence
            batch = RecordBatch(epoch=owner.epoch, host=self._host, records=[owner])
            (message,) = encode_batch(batch, log.max_message_bytes)
            with suppress(Fenced):  # another host was faster, or a write of our own arrived late: read again
                return loaded, await log.append(key, message, expected=loaded.sequence, message_id=uuid4().hex)
        raise ClusterError(f"session {key.session} is written by another host all the time")

    def _start(self, hosted: HostedSession, head: int, epoch: int, first: OwnerRecord | None) -> None:
        key = hosted.key
        setup = WriterSetup(
            host=self._host,
            epoch=epoch,
            may_act=lambda: self._leases.may_act(hosted.shard, epoch),
            before_commit=lambda: self.summaries.mark_work(key),
            on_failure=lambda error: self.kill(hosted),
            first=first,
        )
        writer = SessionWriter(self._cluster.log, key, head, setup)
        created = hosted.state.created
        hosted.writer = writer
        hosted.store = EngineStore(hosted.state.transcripts, writer, "" if created is None else created.cwd)
        self._hosted[key] = hosted
        self._by_shard.setdefault(hosted.shard, set()).add(hosted)
        if hosted.exists:
            self._by_id[key.session] = hosted

    def _continue(self, hosted: HostedSession) -> None:
        """Let a session run on that has unfinished prompts."""
        if not self.hub.has_work(hosted.key.session):
            return
        try:
            self.hub.get(SERVER, hosted.key.session).ensure_loaded()
        except (Refusal, SessionError, UsageError) as exc:
            self._log.warn(f"cannot continue the session {hosted.key.session}: {exc}")

    async def load_interrupted(self, shard: int) -> None:
        """Load the sessions of a shard that have something to do."""
        for key in await self.summaries.find_work(shard):
            if self._leases.epoch(shard) is None:
                return
            await self._load_work(key)

    async def _load_work(self, key: LogKey) -> None:
        is_new = key not in self._due
        self._due.discard(key)
        try:
            async with self.use(key):
                pass
        except NotOwner:
            pass
        except Exception as exc:  # one session must not keep the others from running
            if not isinstance(exc, NewerVersion | LogDamaged):
                self._due.add(key)  # the log may be away or full, and an operator may release what was stopped
            if is_new:
                self._log.warn(f"cannot load the session {key.session}: {type(exc).__name__}: {exc}")

    async def load_due(self) -> None:
        """Load the sessions that were killed or could not be loaded, and have something to do."""
        for key in list(self._due):
            await self._load_work(key)

    async def settle_takeovers(self) -> None:
        """Take note of the sessions that this host has survived. Raises ClusterError."""
        await self.takeovers.settle({hosted.key: self.hub.first_prompt(hosted.key.session) for hosted in self})

    async def look_through(self, shard: int) -> None:
        """Find the sessions of a shard that no list has yet, and the words of those that are not loaded."""
        try:
            await asyncio.sleep(LOOK_THROUGH_SECONDS)  # first, those that have something to do
            listed = await self.summaries.list_keys(shard)
            for key in await self._cluster.log.keys(shard):
                if self._is_closed or self._leases.epoch(shard) is None:
                    return
                if key not in listed:  # its host died before it wrote what others see
                    async with self.use(key):
                        await self.summaries.write(key)
                elif key not in self._hosted and not self.hub.has_row(key.session):
                    await self._read_resting(key)
                    await asyncio.sleep(LOOK_THROUGH_PAUSE_SECONDS)
        except SessionError as exc:
            if not self._is_closed:
                self._log.warn(f"searches may not find all sessions of shard {shard}: {exc}")

    async def _read_resting(self, key: LogKey) -> None:
        try:
            loaded = await read_log(self._cluster.log, key)
        except (NewerVersion, LogDamaged):  # who uses it is told
            return
        if not loaded.state.exists or self._is_closed or key in self._hosted or key in self._busy:
            return
        path = self.hub.log_path(key.session)
        with closing(write_log(path, loaded)) as log:
            log.state.summary = None  # its words are not in the index
            self.hub.rows.restore(log, is_spent_here=False)
        await self.hub.indexer.catch_up(key.session)
        if key not in self._hosted and key not in self._busy:
            path.unlink(missing_ok=True)
            if self._leases.epoch(key.shard(self._leases.count)) is None:
                self.hub.rows.forget(key.session)

    # What the hub asks.

    def find(self, session_id: str) -> HostedSession:
        """Raises SessionError."""
        hosted = self._by_id.get(session_id)
        if hosted is None:
            raise SessionError(f"host {self._host} does not have the session {session_id}")
        return hosted

    def add(self, log: SessionLog, records: Sequence[AnyRecord]) -> None:
        hosted = self.find(log.session_id)
        for record in records:
            hosted.writer.add(record)

    def begin(self, session_id: str, tenant: str) -> None:
        """Raises NotOwner."""
        key = LogKey(tenant, session_id)
        hosted = self._hosted.get(key)
        copied, state = self._copies.pop(session_id, []), SessionState()
        state.apply_all(copied)
        if hosted is None:
            shard = key.shard(self._leases.count)
            epoch = self._leases.epoch(shard)
            if epoch is None:
                raise NotOwner(f"shard {shard} of the new session {session_id} is not run by host {self._host}")
            hosted = HostedSession(key, shard, self.hub, LoadedLog(state=state))
            self._start(hosted, 0, epoch, OwnerRecord(host=self._host, epoch=epoch))
        hosted.exists, self._by_id[session_id] = True, hosted
        for record in copied:
            hosted.writer.add(record)

    def new_id(self, source: str | None = None) -> str:
        """An id whose shard is that of another session, or one that this host owns."""
        if chosen := NEW_SESSION_ID.get():
            return chosen
        count = self._leases.count
        allowed = set(self._leases.owned()) if source is None else {LogKey("", source).shard(count)}
        if not allowed:
            raise NotOwner(f"host {self._host} owns no shard")
        while True:
            found = str(uuid4())
            if LogKey("", found).shard(count) in allowed:
                return found

    def begin_copy(self, session_id: str, new_id: str) -> EngineStore:
        """A store with the transcripts of a session. What is written to it becomes the copy's."""
        self._copies[new_id] = []
        return EngineStore(dict(self.find(session_id).store.transcripts), self._copies[new_id])

    def engine_store(self, session_id: str) -> EngineStore:
        return self.find(session_id).store

    def make_engine(self, live: LiveSession, start: EngineStart, chosen: SessionWorkspace) -> Engine:
        """Raises NotOwner. After that nothing is said about the session here, so that gateways ask its next owner."""
        hosted = self.find(live.id)
        epoch = self._leases.epoch(hosted.shard)
        if epoch is None:
            error = NotOwner(f"the session {live.id} is leaving the host {self._host}")
            hosted.writer.fail(error)
            raise error
        return self.workspaces.make_engine(live, start, chosen, epoch)

    def check_session(self, principal: Principal) -> None:
        self.limits.check_session(principal)

    def check_turn(self, live: LiveSession, created: CreatedRecord, quotas: Quotas) -> None:
        self.limits.check_turn(created.tenant, created.creator, live.id, quotas)

    def check_load(self, session_id: str) -> None:
        if reason := self.takeovers.stopped.get(session_id):
            raise Refusal("hosts_failed", reason)

    async def wait_stored(self, session_id: str) -> None:
        await self.find(session_id).wait_committed()

    async def on_deleted(self, session_id: str) -> None:
        hosted = self._by_id.get(session_id)
        if hosted is None:
            return
        hosted.exists = False
        await hosted.wait_committed()
        await self.summaries.remove(hosted.key)
        await self.takeovers.remove(hosted.key)
        self._tombstones.append((time.monotonic() + TOMBSTONE_SECONDS, hosted.key))
        if not hosted.closed.done():
            hosted.closed.set_result(DELETED)

    # Unload.

    async def evict_idle(self) -> None:
        """Unload the sessions that are not used, and write what others see of those that are."""
        await self.hub.evict_idle()
        now = time.monotonic()
        for hosted in self:
            is_idle = not hosted.users and now - hosted.used_at > self._idle_seconds
            if is_idle and self.hub.find_live(hosted.key.session) is None and not self.hub.has_work(hosted.key.session):
                await self._unload(hosted, EVICTED_MESSAGES)
            elif hosted.tail + hosted.writer.messages >= SNAPSHOT_MESSAGES and hosted.writer.is_settled:
                await self._save_snapshot(hosted)
        await self._bury()

    async def _bury(self) -> None:
        """Delete the logs of sessions that were deleted a while ago."""
        due = [key for at, key in self._tombstones if at <= time.monotonic()]
        self._tombstones = [(at, key) for at, key in self._tombstones if at > time.monotonic()]
        for key in due:
            if self._leases.epoch(key.shard(self._leases.count)) is not None:
                await self._cluster.log.delete(key)

    async def release(self, shard: int) -> None:
        """Unload all sessions of a shard, also in the middle of a turn, for another host to continue them.

        The shard is leaving, so that no other session of it is loaded.
        """
        count = self._leases.count
        loading = [task for key, task in self._busy.items() if key.shard(count) == shard]
        await asyncio.gather(*loading, return_exceptions=True)
        await asyncio.gather(*(self._unload(hosted, SNAPSHOT_MESSAGES) for hosted in self.in_shard(shard)))
        self.lose(shard)

    def lose(self, shard: int) -> None:
        """Forget all sessions of a shard at once."""
        self.kill(*self.in_shard(shard))
        if not self._is_closed:
            for session_id in self.hub.list_ids():
                if LogKey("", session_id).shard(self._leases.count) == shard:
                    self.hub.rows.forget(session_id)

    async def _unload(self, hosted: HostedSession, most: int) -> None:
        """Bring everything into the log and forget a session. With more than `most` messages, write a snapshot."""
        if hosted.key in self._busy or self._hosted.get(hosted.key) is not hosted:
            return
        with suppress(ClusterError):
            await self._begin(hosted.key, self._checkpoint(hosted, most))

    async def _checkpoint(self, hosted: HostedSession, most: int) -> None:
        session_id = hosted.key.session
        hosted.store.close()
        live = self.hub.find_live(session_id)
        if live is not None and live.log.state.is_loaded and not self.hub.has_work(session_id):
            live.log.record(EngineEndedRecord())  # the next engine has nothing to look for
        self._close(hosted, MOVED)
        live = self.hub.drop(session_id)
        rests = False
        try:
            with suppress(SessionError):  # then a search does not find it until it is loaded again
                if hosted.exists:
                    await self.hub.indexer.catch_up(session_id)
                    rests = True
            await hosted.wait_committed()
            if hosted.tail + hosted.writer.messages >= most and hosted.exists and hosted.writer.is_settled:
                await self._save_snapshot(hosted)
            await self.summaries.hand_over(hosted.key)
            if hosted.exists:
                await self.summaries.write(hosted.key)
            await hosted.writer.close()
        finally:
            self._forget(hosted, rests=rests and self._leases.epoch(hosted.shard) is not None)
            hosted.writer.fail(NotOwner(f"session {session_id} was unloaded"))
        if live is not None and live.engine is not None:
            await self._end_engine(live.engine)

    def kill(self, *sessions: HostedSession) -> None:
        """Forget sessions at once: they have another owner, or soon will have."""
        current = [hosted for hosted in sessions if self._hosted.get(hosted.key) is hosted]
        self._due.update(hosted.key for hosted in current)
        for hosted in current:  # first stop all of them, then clean up
            hosted.store.close()
            self._close(hosted, MOVED)
            live = self.hub.drop(hosted.key.session)
            if live is not None and live.engine is not None:
                task = self._loop.create_task(self._end_engine(live.engine))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        for hosted in current:
            self._forget(hosted)
            hosted.writer.fail(LeaseLost(f"session {hosted.key.session} is not run by host {self._host} any more"))

    async def _end_engine(self, engine: Engine) -> None:
        """Wait until an engine has ended its processes, but not for ever: nothing that it says is heard any more."""
        killing = self._loop.create_task(engine.kill())
        done, _ = await asyncio.wait([killing], timeout=END_SECONDS)
        if not done:
            killing.cancel()
            self._log.warn("an engine does not end; what it says is ignored")

    def _close(self, hosted: HostedSession, reason: str) -> None:
        if not hosted.closed.done():
            hosted.closed.set_result(reason)

    def _forget(self, hosted: HostedSession, *, rests: bool = False) -> None:
        """Remove a session from memory and from the files of the hub.

        `rests`: its rows stay, for searches and costs, because this host would load it again.
        """
        key = hosted.key
        if self._hosted.get(key) is hosted:
            del self._hosted[key]
            self._by_shard[hosted.shard].discard(hosted)
        if self._by_id.get(key.session) is hosted:
            del self._by_id[key.session]
            self.hub.indexer.forget(key.session)
            if not rests:
                self.hub.rows.forget(key.session)
            self.hub.log_path(key.session).unlink(missing_ok=True)
        self.summaries.forget(key)
        self.takeovers.forget(key)

    async def _save_snapshot(self, hosted: HostedSession) -> None:
        """Nothing may be under way: the files of the hub are the state at the last message."""
        session_id = hosted.key.session
        with self.hub.open_log(session_id) as log:
            state = without_lines(log.state)
            state.transcripts, state.commands = hosted.store.transcripts, hosted.state.commands
            state.summary = self.hub.indexer.summarize(session_id)
            lines = (record for record in log.all_records() if isinstance(record, LineRecord))
            records = encode_records([StateRecord(state=state), *lines])
        head = hosted.writer.head
        hosted.tail = -hosted.writer.messages
        data = await asyncio.to_thread(encode_snapshot, records)
        try:
            await self._cluster.log.save_snapshot(hosted.key, Snapshot(head, data))
        except ClusterError as exc:
            self._log.warn(f"cannot save a snapshot of the session {session_id}: {exc}")

    async def close(self) -> None:
        """End without a word: what is in the log is what counts."""
        self._is_closed = True
        self.kill(*self)
        if self._tasks:
            await asyncio.wait(self._tasks)
        self.hub.close()


def write_log(path: Path, loaded: LoadedLog, follow: Follower = lambda log, records: None) -> SessionLog:
    """A log file with what the log of the cluster says, without the transcripts. Raises SessionError."""
    path.unlink(missing_ok=True)
    log = SessionLog(path, follow)
    state = without_lines(loaded.state)
    state.transcripts, state.commands = {}, {}
    log.restore([StateRecord(state=state)], *([line] for line in loaded.lines))
    return log


def without_lines(state: SessionState) -> SessionState:
    """A copy whose lines are to follow."""
    return msgspec.structs.replace(state, last_line=0, line_bytes=0)
