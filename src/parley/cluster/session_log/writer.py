"""Writes to the log of one session: its records, and the transcripts of its engine.

    position = writer.add(record)            in memory, at once
    await writer.wait_committed(position)    in the log
    writer.wait_in_thread(position)          the same for a thread

One message is in flight. While it is, the next batch collects, so many records share a commit. Every message carries
the sequence of the last one: if another host has written, the write fails and so does everything that waits (Fenced).
A write whose fate is unknown is repeated under the same id until it is known or the host loses the session.

An engine waits for `EngineStore.sync` before an effect and before a result, so both are in the log first.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

from parley.cluster.base import ClusterError, Fenced, LeaseLost, LogDamaged, LogKey
from parley.cluster.session_log.batches import RecordBatch, encode_batch
from parley.errors import SessionError
from parley.gateway.session_log.records import AgentRecord, AnyRecord, EntryRecord, LabelRecord, TranscriptDeletedRecord
from parley.protocol.base import Json, Struct
from parley.stores.base import Entry, Label, Log
from parley.stores.memory import MemoryStore, StoredTranscript
from parley.stores.numbered_log import NumberedLog

FULL = "ENOSPC"
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0


class LogFull(ClusterError):
    """The log has no room now. What was added is stored when it has."""

    error_code = FULL


class WriterSetup(Struct, frozen=True, kw_only=True):
    """Who writes, and what belongs to a commit besides the append."""

    host: str
    epoch: int
    may_act: Callable[[], bool]
    """Whether the lease of the shard holds."""
    before_commit: Callable[[], Awaitable[None]]
    """Done at the same time as an append; the records are committed when both are done. Raises ClusterError."""
    on_failure: Callable[[ClusterError], None]
    """Called once if the session cannot be written any more."""
    first: AnyRecord | None = None
    """What the first batch begins with."""


class SessionWriter:
    def __init__(self, log: NumberedLog, key: LogKey, head: int, setup: WriterSetup) -> None:
        self._log = log
        self._key = key
        self.head = head
        """The sequence of the last message."""
        self._setup = setup
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._id = uuid4().hex
        """Makes the ids of messages differ from those of an earlier writer with the same lease."""
        self._batches = 0
        self._adding = threading.Lock()
        self._records: list[AnyRecord] = []
        self.position = 0
        """How many records there are, committed or not."""
        self._committed = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._impatient: set[asyncio.Future[None]] = set()
        """Those of them that do not wait for room."""
        self.is_full = False
        """Whether the last try found no room."""
        self._holds = 0
        self._wake = asyncio.Event()
        self._error: ClusterError | None = None
        self.retries = 0
        """How often the current write was repeated; 0 if the log answers."""
        self.messages = 0
        """How many messages were written."""
        self._task = asyncio.create_task(self._run())

    @property
    def is_settled(self) -> bool:
        """Whether everything is in the log."""
        return self.position == self._committed

    def add(self, record: AnyRecord) -> int:
        """Add a record; returns its position. May be called in a thread. Raises what ended the writer."""
        if self._error is not None:
            raise self._error
        with self._adding:
            self._records.append(record)
            self.position = position = self.position + 1
        self.wake()
        return position

    def wake(self) -> None:
        """There is something to commit."""
        if threading.get_ident() == self._thread:
            self._wake.set()
        else:
            self._loop.call_soon_threadsafe(self._wake.set)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Commit what is added inside in one batch. Nothing that waits for a commit may be awaited inside."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._wake.set()

    async def wait_committed(self, position: int, *, waits_for_room: bool = True) -> None:
        """Wait until the records up to a position are in the log.

        Raises Fenced, LeaseLost or ClusterError, and LogFull if the next try finds no room, and room is not waited for.
        """
        if self._error is None and position > self._committed:
            done: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append((position, done))
            if not waits_for_room:
                self._impatient.add(done)
                done.add_done_callback(self._impatient.discard)
            self._wake.set()
            await done
        self.check()

    def check(self) -> None:
        """Raises what ended the writer, or LeaseLost: nothing of the session may leave this host."""
        if self._error is None and not self._setup.may_act():
            self.fail(LeaseLost(f"the lease of the shard of session {self._key.session} has run out"))
        if self._error is not None:
            raise self._error

    def wait_in_thread(self, position: int) -> None:
        """Raises Fenced, LeaseLost or ClusterError."""
        if threading.get_ident() == self._thread:
            raise ClusterError("the log of a cluster cannot be synced in the event loop; use --fsync turn")
        asyncio.run_coroutine_threadsafe(self.wait_committed(position), self._loop).result()

    def fail(self, error: ClusterError) -> None:
        """End at once: nothing more is written, and everybody who waits gets the error."""
        if self._error is not None:
            return
        self._error = error
        self._task.cancel()
        waiters, self._waiters = self._waiters, []
        for _, done in waiters:
            if not done.done():
                done.set_exception(error)
                done.exception()  # the waiter may be gone
        self._setup.on_failure(error)

    async def _run(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._holds:
                    continue
                if self._records:
                    await self._commit()
        except ClusterError as exc:
            self.fail(exc)
        except Exception as exc:
            self.fail(ClusterError(f"the log of session {self._key.session} failed: {type(exc).__name__}: {exc}"))
            raise

    async def _commit(self) -> None:
        """Append what was added so far as one batch."""
        with self._adding:
            records, self._records = self._records, []
        position = self._committed + len(records)
        setup = self._setup
        prefix = [setup.first] if setup.first is not None and self._batches == 0 else []
        batch = RecordBatch(epoch=setup.epoch, host=setup.host, records=[*prefix, *records])
        messages = encode_batch(batch, self._log.max_message_bytes)
        before = asyncio.ensure_future(self._repeat(setup.before_commit))
        try:
            for number, message in enumerate(messages):
                self.head = await self._append(message, f"{self._id}-{self._batches}-{number}")
            await before
        finally:
            before.cancel()
        self._batches += 1
        self.messages += len(messages)
        self._committed = position
        due = [done for at, done in self._waiters if at <= position]
        self._waiters = [(at, done) for at, done in self._waiters if at > position]
        for done in due:
            if not done.done():
                done.set_result(None)

    async def _append(self, message: bytes, message_id: str) -> int:
        found = 0

        async def append() -> None:
            nonlocal found
            found = await self._log.append(self._key, message, expected=self.head, message_id=message_id)

        await self._repeat(append)
        return found

    async def _repeat(self, act: Callable[[], Awaitable[None]]) -> None:
        """Until it is known that it is done. Raises Fenced or LogDamaged."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                await act()
            except (Fenced, LogDamaged):
                raise
            except ClusterError as exc:
                self.retries += 1
                if exc.error_code == FULL:
                    self.is_full = True
                    for done in list(self._impatient):
                        if not done.done():
                            done.set_exception(LogFull(str(exc)))
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            else:
                self.retries, self.is_full = 0, False
                return

    async def close(self) -> None:
        """Commit what is left, and end. Raises what ended the writer."""
        await self.wait_committed(self.position)
        self._error = ClusterError(f"session {self._key.session} was unloaded")
        self._task.cancel()
        await asyncio.wait([self._task])


class EngineStore(MemoryStore):
    """The store of one session of the gateway. Its engine may begin further transcripts, with `/clear`."""

    holder = "this host"

    def __init__(
        self, transcripts: dict[str, StoredTranscript], recorder: SessionWriter | list[AnyRecord], cwd: str = ""
    ) -> None:
        """`recorder`: a list for a copy, which is written to the log when it is complete."""
        super().__init__(cwd, transcripts)
        self._recorder = recorder
        self._is_closed = False

    def close(self) -> None:
        """Take nothing more: the session moves to another host, whatever its engine still does."""
        self._is_closed = True

    def _record(self, record: AnyRecord) -> int:
        """Returns the position in the log."""
        if self._is_closed:
            raise SessionError("the session moves to another host")
        if isinstance(self._recorder, SessionWriter):
            return self._recorder.add(record)
        self._recorder.append(record)
        return 0

    def append(self, session_id: str, agent_id: str, *entries: Entry) -> int:
        position = 0
        for entry in entries:
            position = self._record(EntryRecord(session=session_id, agent=agent_id, entry=entry))
            super().append(session_id, agent_id, entry)
        return position

    def sync(self, position: int) -> None:
        if isinstance(self._recorder, SessionWriter):
            self._recorder.wait_in_thread(position)

    async def wait_synced(self, position: int) -> None:
        if isinstance(self._recorder, SessionWriter):
            await self._recorder.wait_committed(position)

    def _label(self, session_id: str, label: Label, text: str | None) -> None:
        super()._label(session_id, label, text)
        found = self.transcripts[session_id]
        self._record(LabelRecord(session=session_id, title=found.title, title_at=found.title_at, tag=found.tag))

    def _remove(self, session_id: str) -> None:
        self._record(TranscriptDeletedRecord(session=session_id))
        super()._remove(session_id)

    def agent_log(self, session_id: str, agent_id: str, meta: Json | None) -> Log:
        if meta is not None:
            self._record(AgentRecord(session=session_id, agent=agent_id, meta=meta))
        return super().agent_log(session_id, agent_id, meta)
