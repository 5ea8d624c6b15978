"""Canonical JSON for checksums: equal objects give equal bytes, however they are formatted.

A program that rewrites a record may reorder its fields (databases sort them), write 1.0 as 1 (JavaScript has one
number type) and use other escapes. The canonical form ignores all of that.

    canonical_bytes(b'{"b": 1.0, "a": 2, "check": "…"}') == canonical_bytes(b'{"a":2,"b":1}')

Other programs copy records into files of their own (forks). They leave records out and change `sessionId`,
`gitBranch` and `promptId`. The checksum `own` covers one record without its neighbours and without those fields,
followed by a checksum of the session it was written for, so a copy can be distinguished from an original record.
"""

from __future__ import annotations

import re
import zlib
from typing import Any

import msgspec

from parley.protocol.base import Json

CHECKSUM_FIELDS = ("sum", "check")
DIGITS = re.compile(r"[0-9a-f]{8}")
OWN = "own"
DIGITS_OF_SUM = 8
COPIED_FIELDS = (
    "at",
    "compactMetadata",
    "context",
    "customTitle",
    "entry",
    "foreign",
    "isApiErrorMessage",
    "isCompactSummary",
    "isMeta",
    "isVisibleInTranscriptOnly",
    "kind",
    "message",
    "parley",
    "permissionMode",
    "requestId",
    "seq",
    "subtype",
    "timestamp",
    "toolUseResult",
    "type",
    "uuid",
)
"""The fields of a record that are the same in a copy."""


def parse_number(text: str) -> float | int:
    """Return an int if the number has no fraction."""
    value = float(text)
    return int(value) if value.is_integer() else value


DECODER = msgspec.json.Decoder(dict[str, Any], float_hook=parse_number)


def canonical_bytes(line: bytes) -> bytes:
    """The canonical form of a record without its checksums. The line must be valid JSON."""
    record = DECODER.decode(line)
    for name in CHECKSUM_FIELDS:
        record.pop(name, None)
    return msgspec.json.encode(record, order="deterministic")


def add_own_checksum(body: bytes) -> tuple[bytes, bytes]:
    """Add the `own` checksum to a record. Returns the record and its canonical form."""
    record = DECODER.decode(body)
    record[OWN] = compute_own_checksum(record)
    body = b'%b,"%b":"%b"}' % (body[:-1], OWN.encode(), record[OWN].encode())
    return body, msgspec.json.encode(record, order="deterministic")


def compute_own_checksum(record: Json, session: str = "") -> str:
    """The checksum of one record, followed by that of its session (by default the one in `sessionId`)."""
    covered = {name: record[name] for name in COPIED_FIELDS if name in record}
    session = session or session_checksum(str(record.get("sessionId")))
    return f"{zlib.crc32(session.encode() + msgspec.json.encode(covered, order='deterministic')):08x}{session}"


def session_checksum(session_id: str) -> str:
    return f"{zlib.crc32(session_id.encode(errors='replace')):08x}"


def is_intact(line: bytes) -> bool:
    """Whether a record still matches its `own` checksum. The line must be valid JSON."""
    record = DECODER.decode(line)
    return record.get(OWN) == compute_own_checksum(record)


def is_copy(line: bytes, session_id: str) -> bool:
    """Whether a line of this session is an intact record that was written for another session."""
    record = DECODER.decode(line)
    stored = str(record.get(OWN))
    if record.get("sessionId") != session_id or stored[DIGITS_OF_SUM:] == session_checksum(session_id):
        return False
    return stored == compute_own_checksum(record, stored[DIGITS_OF_SUM:])


def find_checksums(line: bytes) -> tuple[int, int] | None:
    """The values of `sum` and `check`, wherever they are in the record; None unless it has both."""
    if b'"sum"' not in line or b'"check"' not in line:
        return None
    try:
        record = DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    total, check = (str(record.get(name)) for name in CHECKSUM_FIELDS)
    return (int(total, 16), int(check, 16)) if DIGITS.fullmatch(total) and DIGITS.fullmatch(check) else None
