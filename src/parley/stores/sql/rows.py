"""Entries as database rows, chained by checksums like the lines of a file (checksum_chain.py).

A row's checksum covers its fields and all rows before it, so altered, missing and reordered rows are detected. A
database has no partial writes, so any damage is an error. A repair moves the rows from there on to another key. Rows
without checksums, from older versions, are only accepted before all others.

    chain = RowChain(session_id, "sessions.db")
    entry = chain.entry(seq, kind, at, message, context, stored)

The keys of subagents' entries and of moved rows contain a slash, which session ids do not.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from parley.errors import DamagedSession
from parley.protocol.base import Struct
from parley.stores.base import Entry, Info

DECODER = msgspec.json.Decoder()
Row = tuple[Any, ...]
"""seq, kind, at, message, context (UTF-8 bytes), checksum. In a damaged file the values may have any type."""


class RowDamage(Struct, frozen=True):
    """The first damaged row, and the size of the intact part before it."""

    seq: int
    kept_bytes: int
    kept_messages: int


class RowChain:
    """Verifies rows in order. `total` is the checksum that the next row continues from."""

    def __init__(self, session_id: str, location: str, total: int = 0) -> None:
        self.total = total
        self._session_id = session_id
        self._location = location
        self._has_checksums = False

    def entry(self, seq: int, kind: bytes, at: bytes, message: bytes, context: bytes, stored: int | None) -> Entry:
        """Decode a row. Raises DamagedSession unless it continues the chain."""
        try:
            total = next_checksum(self.total, seq, kind, at, message, context)
            if stored != total and (stored is not None or self._has_checksums):
                raise DamagedSession(self._session_id, f"entry {seq} in {self._location}")
            self.total, self._has_checksums = total, stored is not None
            decoded, decoded_context = DECODER.decode(message), DECODER.decode(context)
            return Entry(seq=seq, kind=kind.decode(), at=at.decode(), message=decoded, context=decoded_context)
        except (TypeError, AttributeError, UnicodeDecodeError, msgspec.DecodeError, RecursionError):
            raise DamagedSession(self._session_id, f"entry {seq} in {self._location}") from None

    def entries(self, rows: Iterable[Row], after: int = -1) -> Iterator[Entry]:
        """Raises DamagedSession."""
        for row in rows:
            entry = self.entry(*row)
            if entry.seq > after:
                yield entry


def next_checksum(before: int, seq: int, kind: bytes, at: bytes, message: bytes, context: bytes) -> int:
    """The checksum of a row after others with the checksum `before`."""
    return zlib.crc32(b"\0".join((b"%d" % seq, kind, at, message, context)), before)


def find_damage(rows: Iterable[Row]) -> RowDamage | None:
    """Find the first row that does not continue the chain; None if all do."""
    chain, size, messages = RowChain("", ""), 0, 0
    for row in rows:
        try:
            entry = chain.entry(*row)
        except DamagedSession:
            return RowDamage(seq=row[0], kept_bytes=size, kept_messages=messages)
        size += len(row[3]) + len(row[4])
        messages += entry.kind in ("user", "assistant")
    return None


def agent_key(session_id: str, agent_id: str) -> str:
    return f"{session_id}/agent-{agent_id}"


def aside_key(session_id: str, stamp: str) -> str:
    return f"{session_id}/damaged-{stamp}"


def keys_below(session_id: str) -> tuple[str, str]:
    """A half-open range of keys that covers all keys of a session except its own log's."""
    return f"{session_id}/", f"{session_id}0"


def info_from_row(row: Row) -> Info:
    """A session's row, with its columns in the order of the fields of `Info`."""
    return Info(**dict(zip(Info.__struct_fields__, row, strict=True)))
