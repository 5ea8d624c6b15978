"""The log of a session in a cluster: batches of records, how they are written, and how a log is read.

    position = writer.add(record)            in memory, at once
    await writer.wait_committed(position)    in the log
    writer.wait_in_thread(position)          the same for a thread
    await read_log(log, key)                 the state of a session and its lines: the snapshot, and what follows it

One message is in flight. While it is, the next batch collects, so many records share a commit. Every message carries
the sequence of the last one: if another host has written, the write fails and so does everything that waits (Fenced).
A write whose fate is unknown is repeated under the same id until it is known or the host loses the session.

An engine waits for `EngineStore.sync` before an effect and before a result, so both are in the log first.

A batch is one message, or several parts (`BatchReader` joins them). A snapshot is the state and the lines, as records.
A version may add fields to records: older hosts ignore them. A new kind of record, or one that means something else,
raises `VERSION`. A host that meets a newer version or an unknown kind leaves the session to another one.

See also: `parley.gateway.session_log.records` for what can happen.
"""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from uuid import uuid4

import msgspec

from parley.cluster.base import ClusterError, Fenced, LeaseLost, LogDamaged, LogKey, Snapshot
from parley.errors import SessionError
from parley.gateway.session_log.records import (
    AgentRecord,
    AnyRecord,
    EntryRecord,
    LabelRecord,
    LineRecord,
    NewerVersion,
    SessionState,
    TranscriptDeletedRecord,
    decode_records,
    encode_records,
)
from parley.protocol.base import Json, Struct
from parley.stores.base import Entry, Label, Log
from parley.stores.memory import MemoryStore, StoredTranscript
from parley.stores.numbered_log import NumberedLog

VERSION = 3
OLDEST_VERSION = 3
"""Older logs have rows of a database instead of records. No release wrote them."""
ENVELOPE_BYTES = 1024
"""More than a message needs besides its part of the records."""
FULL = "ENOSPC"
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0


class RecordBatch(Struct, frozen=True, kw_only=True):
    """Records that were committed together."""

    epoch: int
    host: str
    records: Sequence[AnyRecord]


class BatchMessage(Struct, frozen=True, kw_only=True):
    """A message of the log: a batch, or a part of one."""

    v: int
    epoch: int
    host: str
    part: tuple[int, int] | None = None
    """The number of this part, from 0, and how many there are."""
    data: bytes
    """The records, or a part of their bytes."""


_encoder = msgspec.msgpack.Encoder()
_message = msgspec.msgpack.Decoder(BatchMessage)


def encode_batch(batch: RecordBatch, max_bytes: int) -> list[bytes]:
    """The messages of a batch, each not longer than the log allows."""
    data = encode_records(batch.records)
    most = max_bytes - ENVELOPE_BYTES
    count = -(-len(data) // most)
    if count == 1:
        return [_encoder.encode(BatchMessage(v=VERSION, epoch=batch.epoch, host=batch.host, data=data))]
    return [
        _encoder.encode(
            BatchMessage(
                v=VERSION,
                epoch=batch.epoch,
                host=batch.host,
                part=(number, count),
                data=data[number * most : (number + 1) * most],
            )
        )
        for number in range(count)
    ]


class BatchReader:
    """Joins messages of a log to batches. Parts of a batch that was never completed were never acknowledged."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, message: bytes) -> RecordBatch | None:
        """Raises NewerVersion or LogDamaged."""
        try:
            read = _message.decode(message)
        except msgspec.MsgspecError as exc:
            raise LogDamaged(f"a message of the log cannot be read: {exc}") from None
        check_version(read.v)
        if read.part is None:
            self._parts = []
            return RecordBatch(epoch=read.epoch, host=read.host, records=decode_records(read.data))
        number, count = read.part
        if number != len(self._parts):
            if number != 0:
                raise LogDamaged(f"part {len(self._parts)} of a batch is missing from the log")
            self._parts = []
        self._parts.append(read.data)
        if len(self._parts) < count:
            return None
        data, self._parts = b"".join(self._parts), []
        return RecordBatch(epoch=read.epoch, host=read.host, records=decode_records(data))


def check_version(version: int) -> None:
    """Raises NewerVersion or LogDamaged."""
    if version > VERSION:
        raise NewerVersion(f"the log has records of version {version}, this host reads up to version {VERSION}")
    if version < OLDEST_VERSION:
        raise LogDamaged(f"the log has records of an older version, {version}, which this Parley does not read")


def encode_snapshot(records: bytes) -> bytes:
    """`records`: encoded. May be called in a thread."""
    return _encoder.encode((VERSION, zlib.compress(records, 1)))


def decode_snapshot(data: bytes) -> list[AnyRecord]:
    """Raises NewerVersion or LogDamaged."""
    try:
        version, packed = msgspec.msgpack.decode(data, type=tuple[int, bytes])
        check_version(version)
        return decode_records(zlib.decompress(packed))
    except (msgspec.MsgspecError, zlib.error) as exc:
        raise LogDamaged(f"a snapshot cannot be read: {exc}") from None


class LoadedLog(Struct):
    state: SessionState = msgspec.field(default_factory=SessionState)
    lines: list[LineRecord] = msgspec.field(default_factory=list)
    sequence: int = 0
    """The last message that was read."""
    tail: int = 0
    """How many messages were read after the snapshot."""

    def apply_all(self, records: Iterable[AnyRecord]) -> None:
        """Raises LogDamaged."""
        for record in records:
            self.state.apply(record)
            if isinstance(record, LineRecord):
                self.lines.append(record)


async def read_log(log: NumberedLog, key: LogKey) -> LoadedLog:
    """Raises NewerVersion, LogDamaged or ClusterError."""
    snapshot = await log.load_snapshot(key)
    while True:
        try:
            return await read_after(log, key, snapshot)
        except LogDamaged:
            newer = await log.load_snapshot(key)
            if newer is None or (snapshot is not None and newer.sequence <= snapshot.sequence):
                raise
            snapshot = newer  # it replaced messages while they were being read


async def read_after(log: NumberedLog, key: LogKey, snapshot: Snapshot | None) -> LoadedLog:
    """What follows from a snapshot and the messages after it."""
    loaded, reader = LoadedLog(), BatchReader()
    if snapshot is not None:
        loaded.apply_all(decode_snapshot(snapshot.data))
        loaded.sequence = snapshot.sequence
    async for sequence, message in log.read(key, after=loaded.sequence):
        batch = reader.feed(message)
        if batch is not None:
            loaded.apply_all(batch.records)
        loaded.sequence = sequence
        loaded.tail += 1
    return loaded


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
