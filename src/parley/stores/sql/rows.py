"""Entries as rows of a database, chained by checksums like the lines of a file (checksum_chain.py).

A row's checksum covers its fields and all rows before it, so that one which is altered, missing
or out of its place is found. A database has no torn ends: any damage is a refusal, and a repair
gives the rows from there on another name. Rows of versions without checksums come first or not at all.

    chain = Rows(session_id, "sessions.db")
    entry = chain.entry(seq, kind, at, message, context, stored)

What belongs to a session and is not its log has a name behind a slash, which no id has.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from parley.errors import DamagedSession
from parley.protocol.base import Struct
from parley.stores.base import Entry

DECODER = msgspec.json.Decoder()
Row = tuple[Any, ...]
"""Number, kind, time, message and context as UTF-8, checksum: as a damaged file gives them, of whatever type."""


class Damage(Struct, frozen=True):
    """Where the good rows of a session end."""

    seq: int
    kept_bytes: int
    kept_messages: int


class Rows:
    """Reads rows from the first on, and knows afterwards what the next one follows on."""

    def __init__(self, session_id: str, place: str, total: int = 0) -> None:
        self.total = total
        self._session_id = session_id
        self._place = place
        self._has_begun = False

    def entry(self, seq: int, kind: bytes, at: bytes, message: bytes, context: bytes, stored: int | None) -> Entry:
        """Raises DamagedSession unless the row follows on the one before it."""
        try:
            total = follow(self.total, seq, kind, at, message, context)
            if stored != total and (stored is not None or self._has_begun):
                raise DamagedSession(self._session_id, f"entry {seq} in {self._place}")
            self.total, self._has_begun = total, stored is not None
            spoken, about = DECODER.decode(message), DECODER.decode(context)
            return Entry(seq=seq, kind=kind.decode(), at=at.decode(), message=spoken, context=about)
        except (TypeError, AttributeError, UnicodeDecodeError, msgspec.DecodeError, RecursionError):
            raise DamagedSession(self._session_id, f"entry {seq} in {self._place}") from None

    def entries(self, rows: Iterable[Row], after: int = -1) -> Iterator[Entry]:
        """Raises DamagedSession."""
        for row in rows:
            entry = self.entry(*row)
            if entry.seq > after:
                yield entry


def follow(before: int, seq: int, kind: bytes, at: bytes, message: bytes, context: bytes) -> int:
    """The checksum of a row behind others."""
    return zlib.crc32(b"\0".join((b"%d" % seq, kind, at, message, context)), before)


def damage(rows: Iterable[Row]) -> Damage | None:
    """The first row that does not follow on those before it; None if all do."""
    chain, size, said = Rows("", ""), 0, 0
    for row in rows:
        try:
            entry = chain.entry(*row)
        except DamagedSession:
            return Damage(seq=row[0], kept_bytes=size, kept_messages=said)
        size += len(row[3]) + len(row[4])
        said += entry.kind in ("user", "assistant")
    return None


def agent_key(session_id: str, agent_id: str) -> str:
    return f"{session_id}/agent-{agent_id}"


def aside_key(session_id: str, stamp: str) -> str:
    return f"{session_id}/damaged-{stamp}"


def keys_below(session_id: str) -> tuple[str, str]:
    """Every name of what belongs to a session is from the first of these on and before the second."""
    return f"{session_id}/", f"{session_id}0"
