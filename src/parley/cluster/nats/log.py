"""The logs of sessions in one stream, with a subject for each session, and their snapshots in another.

Each message says which one it follows, so that a missing one is noticed when the log is read. A server that was
restored from an older copy is noticed by the next write: its sequence is not higher than those seen before.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

from parley.cluster.nats.jetstream import (
    EXPECTED,
    MESSAGE_ID,
    WRONG_LAST_SEQUENCE,
    JetStream,
    JetStreamError,
    Stored,
    StreamNames,
)
from parley.cluster.subjects import parse_session_tokens, session_tokens
from parley.errors import ClusterError
from parley.stores.numbered_log import (
    LogKey,
    SequenceGuard,
    Snapshot,
    make_gap,
    make_refusal,
    make_reused_id,
    make_too_long,
    make_truncated,
)

PREVIOUS = "Parley-Previous"
HEADER_BYTES = 4096
"""Headers count as a part of a message."""
FRESH_NANOSECONDS = 5_000_000_000
SEQUENCE = "Parley-Sequence"
PART = "Parley-Part"
"""`<index>/<number of parts>`."""
ATTEMPTS = 5


class NatsLog:
    def __init__(self, stream: JetStream, names: StreamNames, shards: int) -> None:
        self._stream = stream
        self._where = stream.where
        self._name = names.log
        self._subject = names.log_subject
        self._shards = shards
        self._snapshots = SnapshotStore(stream, names, self.max_message_bytes)
        self._guard = SequenceGuard(stream.where)
        self._checked_generation = stream.connection.generation

    @property
    def max_message_bytes(self) -> int:
        return self._stream.connection.max_payload_bytes - HEADER_BYTES

    async def append(self, key: LogKey, data: bytes, *, expected: int, message_id: str) -> int:
        if len(data) > self.max_message_bytes:
            raise make_too_long(self._where, len(data), self.max_message_bytes)
        await self._check_stream()
        tokens = session_tokens(key, self._shards)
        subject = f"{self._subject}.{tokens}"
        # The server compares ids over the whole stream.
        headers = {MESSAGE_ID: f"{tokens}/{message_id}", EXPECTED: str(expected), PREVIOUS: str(expected)}
        highest = self._guard.highest
        try:
            ack = await self._stream.store(subject, data, headers)
        except JetStreamError as exc:
            if exc.number not in WRONG_LAST_SEQUENCE:
                raise
            return await self._find_stored(key, headers, data, expected)
        if ack.duplicate:
            stored = await self._stream.get(self._name, ack.seq)
            return self._check_stored(key, stored, headers, data)
        self._guard.require_newer(ack.seq, highest)
        return ack.seq

    async def _find_stored(self, key: LogKey, headers: dict[str, str], data: bytes, expected: int) -> int:
        """The sequence of a message that an earlier call has stored. Raises Fenced, LogDamaged, ClusterError."""
        subject = self._subject_of(key)
        following = await self._stream.get_next(self._name, subject, expected)
        if following is not None and following.headers.get(MESSAGE_ID) == headers[MESSAGE_ID]:
            return self._check_stored(key, following, headers, data)
        head = await self._get_head(key)
        if head < expected:
            await self._confirm_loss()
        raise make_refusal(self._where, key, head, expected)

    def _check_stored(self, key: LogKey, stored: Stored | None, headers: dict[str, str], data: bytes) -> int:
        """The sequence of a message that has our id. Raises Fenced if it is not ours."""
        if stored is None or (stored.data, stored.headers.get(PREVIOUS)) != (data, headers[PREVIOUS]):
            raise make_reused_id(self._where, key, headers[MESSAGE_ID])
        self._guard.see(stored.sequence)
        return stored.sequence

    async def read(self, key: LogKey, after: int = 0) -> AsyncIterator[tuple[int, bytes]]:
        await self._check_stream()
        subject = self._subject_of(key)
        head = await self._get_head(key)
        if head < after:
            await self._confirm_loss()
            raise make_truncated(self._where, key, head, after)
        while after < head:
            batch, _ = await self._stream.get_batch(self._name, subject, after)
            if not batch or previous_of(batch[0]) != after:
                # The replica that answered may be behind, but the leader is not.
                following = await self._stream.get_next(self._name, subject, after)
                if following is None or previous_of(following) != after:
                    raise make_gap(self._where, key, after, following.sequence if following else head)
                batch = [following]
            for message in batch:
                if message.sequence > head or previous_of(message) != after:
                    break
                yield message.sequence, message.data
                after = message.sequence

    async def head(self, key: LogKey) -> int:
        await self._check_stream()
        return await self._get_head(key)

    async def _get_head(self, key: LogKey) -> int:
        last = await self._stream.get_last(self._name, self._subject_of(key))
        return last.sequence if last else 0

    async def save_snapshot(self, key: LogKey, snapshot: Snapshot) -> None:
        tokens = session_tokens(key, self._shards)
        if (head := await self.head(key)) < snapshot.sequence:
            await self._confirm_loss()
            raise make_truncated(self._where, key, head, snapshot.sequence)
        if await self._snapshots.save(tokens, snapshot):
            # Up to, but not including, the last one that the snapshot contains.
            await self._purge(self._subject_of(key), seq=snapshot.sequence)

    async def load_snapshot(self, key: LogKey) -> Snapshot | None:
        return await self._snapshots.load(session_tokens(key, self._shards))

    async def delete(self, key: LogKey) -> None:
        # The messages last: as long as there are any, `keys` has the session, so that a deletion can be repeated.
        await self._snapshots.delete(session_tokens(key, self._shards))
        await self._purge(self._subject_of(key))

    async def keys(self, shard: int) -> list[LogKey]:
        pattern = f"{self._subject}.{shard}.>"
        found: list[LogKey] = []
        while True:
            query = {"subjects_filter": pattern, "offset": len(found)}
            page = await self._stream.call(f"STREAM.INFO.{self._name}", query)
            subjects = page["state"].get("subjects") or {}
            found += [parse_session_tokens(subject) for subject in subjects]
            if not subjects or len(found) >= page.get("total", 0):
                return sorted(found)

    def _subject_of(self, key: LogKey) -> str:
        return f"{self._subject}.{session_tokens(key, self._shards)}"

    async def _purge(self, subject: str, **limit: int) -> None:
        await self._stream.call(f"STREAM.PURGE.{self._name}", {"filter": subject, **limit})

    async def _check_stream(self) -> None:
        """After a reconnection, check that the stream is not an older copy. Raises LogDamaged, ClusterError."""
        self._guard.check()
        generation = self._stream.connection.generation
        if generation == self._checked_generation:
            return
        last = (await self._stream.info(self._name))["state"]["last_seq"]
        if last < self._guard.highest:
            await self._require_quorum()
            self._guard.require_newer(last, self._guard.highest)
        self._checked_generation = generation

    async def _confirm_loss(self) -> None:
        """Before a session is reported as damaged. Raises LogDamaged if the whole stream is, ClusterError."""
        await self._check_stream()  # the connection may have changed since the call began
        await self._require_quorum()

    async def _require_quorum(self) -> None:
        """Raises ClusterError if the leader that answers may have been replaced without knowing it."""
        cluster: dict[str, Any] = (await self._stream.info(self._name)).get("cluster") or {}
        replicas = cluster.get("replicas") or []
        reached = [one for one in replicas if one.get("current") and one.get("active", 0) < FRESH_NANOSECONDS]
        if (1 + len(reached)) * 2 <= 1 + len(replicas):
            raise ClusterError(f"{self._where}: the leader of {self._name} does not reach a majority of its replicas")


def previous_of(message: Stored) -> int:
    """The sequence of the message before; -1 if it is not one of ours."""
    text = message.headers.get(PREVIOUS, "")
    return int(text) if text.isdecimal() else -1


class SnapshotStore:
    def __init__(self, stream: JetStream, names: StreamNames, part_bytes: int) -> None:
        self._stream = stream
        self._name = names.snapshots
        self._subject = names.snapshots_subject
        self._part_bytes = part_bytes

    async def save(self, tokens: str, snapshot: Snapshot) -> bool:
        """Whether it was stored; False if there is a newer one. Raises ClusterError."""
        subject = f"{self._subject}.{tokens}"
        for _ in range(ATTEMPTS):
            messages = await self._stream.read_all(self._name, subject)
            newest = find_newest(messages)
            if newest and sequence_of(newest[0]) > snapshot.sequence:
                return False
            try:
                first = await self._store(subject, snapshot, messages[-1].sequence if messages else 0)
            except JetStreamError as exc:
                if exc.number not in WRONG_LAST_SEQUENCE:
                    raise
                continue  # another host saves one, too
            await self._stream.call(f"STREAM.PURGE.{self._name}", {"filter": subject, "seq": first})
            return True
        raise ClusterError(f"{self._stream.where}: other hosts write snapshots of the same session ({subject})")

    async def _store(self, subject: str, snapshot: Snapshot, last: int) -> int:
        """The sequence of the first part."""
        count = max(1, math.ceil(len(snapshot.data) / self._part_bytes))
        first = 0
        for index in range(count):
            part = snapshot.data[index * self._part_bytes : (index + 1) * self._part_bytes]
            headers = {EXPECTED: str(last), SEQUENCE: str(snapshot.sequence), PART: f"{index}/{count}"}
            last = (await self._stream.store(subject, part, headers)).seq
            first = first or last
        return first

    async def load(self, tokens: str) -> Snapshot | None:
        """The newest complete one. Raises ClusterError."""
        newest = find_newest(await self._stream.read_all(self._name, f"{self._subject}.{tokens}"))
        if not newest:
            return None
        return Snapshot(sequence_of(newest[0]), b"".join(part.data for part in newest))

    async def delete(self, tokens: str) -> None:
        """Raises ClusterError."""
        await self._stream.call(f"STREAM.PURGE.{self._name}", {"filter": f"{self._subject}.{tokens}"})


def find_newest(messages: list[Stored]) -> list[Stored]:
    """The parts of the newest complete snapshot; empty if there is none."""
    newest: list[Stored] = []
    for start, message in enumerate(messages):
        index, _, count = message.headers.get(PART, "").partition("/")
        if index != "0":
            continue
        parts = messages[start : start + int(count)]
        wanted = [(f"{number}/{count}", message.headers[SEQUENCE]) for number in range(int(count))]
        is_complete = [(part.headers.get(PART), part.headers.get(SEQUENCE)) for part in parts] == wanted
        if is_complete and (not newest or sequence_of(message) >= sequence_of(newest[0])):
            newest = parts
    return newest


def sequence_of(message: Stored) -> int:
    return int(message.headers[SEQUENCE])
