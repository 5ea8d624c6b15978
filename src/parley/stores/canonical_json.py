"""What a record says, whoever spells it: the same bytes for the same JSON object.

Whoever reads a record and writes it again may put its fields in another order (databases sort them),
write 1.0 as 1 (JavaScript knows one kind of number) and choose other escapes. None of that changes what it says.

    of(b'{"b": 1.0, "a": 2, "check": "…"}') == of(b'{"a":2,"b":1}')

Other engines copy records into files of their own (forks): they leave records out, and change what says where a line
stands (`sessionId`, `gitBranch`, `promptId`). `own` sums up one record without its neighbours and without those
fields, and beside that the session it was written for: a copy is told from a record that stands at its place.
"""

from __future__ import annotations

import re
import zlib
from typing import Any

import msgspec

from parley.protocol.base import Json

MARKS = ("sum", "check")
DIGITS = re.compile(r"[0-9a-f]{8}")
OWN = "own"
DIGITS_OF_SUM = 8
SAID = (
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
"""The fields of a record that a copy keeps."""


def number(spelled: str) -> float | int:
    """A number with nothing behind its point is a whole one."""
    value = float(spelled)
    return int(value) if value.is_integer() else value


DECODER = msgspec.json.Decoder(dict[str, Any], float_hook=number)


def of(line: bytes) -> bytes:
    """What the object of a line says, without the checksums. The line is one that can be read."""
    found = DECODER.decode(line)
    for mark in MARKS:
        found.pop(mark, None)
    return msgspec.json.encode(found, order="deterministic")


def with_own(body: bytes) -> tuple[bytes, bytes]:
    """A record with the checksum of itself, and what it says with that."""
    found = DECODER.decode(body)
    found[OWN] = own_of(found)
    body = b'%b,"%b":"%b"}' % (body[:-1], OWN.encode(), found[OWN].encode())
    return body, msgspec.json.encode(found, order="deterministic")


def own_of(found: Json, session: str = "") -> str:
    """The checksum of a record by itself with that of the session it was written for: the one it names."""
    said = {name: found[name] for name in SAID if name in found}
    session = session or session_sum(str(found.get("sessionId")))
    return f"{zlib.crc32(session.encode() + msgspec.json.encode(said, order='deterministic')):08x}{session}"


def session_sum(session_id: str) -> str:
    return f"{zlib.crc32(session_id.encode(errors='replace')):08x}"


def is_whole(line: bytes) -> bool:
    """Whether a line that can be read is a record as it was written."""
    found = DECODER.decode(line)
    return found.get(OWN) == own_of(found)


def is_copy(line: bytes, session_id: str) -> bool:
    """Whether a line of a session is a whole record that was written for another one."""
    found = DECODER.decode(line)
    stored = str(found.get(OWN))
    if found.get("sessionId") != session_id or stored[DIGITS_OF_SUM:] == session_sum(session_id):
        return False
    return stored == own_of(found, stored[DIGITS_OF_SUM:])


def marks(line: bytes) -> tuple[int, int] | None:
    """The checksums of a record, wherever in it they stand; None for a line without both."""
    if b'"sum"' not in line or b'"check"' not in line:
        return None
    try:
        found = DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    total, check = (str(found.get(mark)) for mark in MARKS)
    return (int(total, 16), int(check, 16)) if DIGITS.fullmatch(total) and DIGITS.fullmatch(check) else None
