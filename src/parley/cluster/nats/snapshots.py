"""Snapshots in a stream, with a subject for each session.

A snapshot is a group of messages that follow each other directly: each is stored only after the one before, so that two
writers cannot mix their groups. Older groups are removed when a newer one is complete.
"""

from __future__ import annotations

import math

from parley.cluster.base import ClusterError, Snapshot
from parley.cluster.nats.jetstream import EXPECTED, WRONG_LAST_SEQUENCE, JetStream, JetStreamError, Stored
from parley.cluster.nats.streams import StreamNames

SEQUENCE = "Parley-Sequence"
PART = "Parley-Part"
"""`<index>/<number of parts>`."""
ATTEMPTS = 5


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
