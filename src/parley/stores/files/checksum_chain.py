"""Chain the records of a file by checksums, so that damage anywhere in it is detected.

Each record ends with a checksum of itself and of all records before it. Lines without a checksum were written by
other programs; they may appear between our records and are not part of the chain. An unreadable line is skipped if
our next record continues the chain from our last good one: nothing of ours was lost, it was a partial write. A record
that does not continue the chain means that records are missing.

There are three checksums. `check` covers the bytes and is fast. `sum` covers the canonical form, so a record that was
rewritten with other whitespace, escapes or field order is still recognized. `own` covers one record alone: it proves
that a copy in another program's fork is intact although its neighbours are missing.

    chain = ChecksumChain()
    record = chain.append(b'{"type":"user"}')    # {"type":"user","own":"…","sum":"…","check":"…"}
    ChecksumChain().verify(record)               # True: it continues the chain

A program that rewrites a record may reorder its fields (databases sort them), write 1.0 as 1 (JavaScript has one
number type) and use other escapes. The canonical form ignores all of that:

    canonical_bytes(b'{"b": 1.0, "a": 2, "check": "…"}') == canonical_bytes(b'{"a":2,"b":1}')

Other programs copy records into files of their own (forks). They leave records out and change `sessionId`,
`gitBranch` and `promptId`. The checksum `own` covers one record without its neighbours and without those fields,
followed by a checksum of the session it was written for, so a copy can be distinguished from an original record.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache
from typing import Any

import msgspec

from parley.protocol.base import Json

PREFIX, SUFFIX = b',"check":"', b'"}'
DIGITS = 8
LENGTH = len(PREFIX) + DIGITS + len(SUFFIX)
# Patterns are compiled on first use: a new session needs none of them.
SUM, SUM_LENGTH = rb',"sum":"([0-9a-f]{8})"', 17
CHECKSUM_END = rb',"[^"]{5}":"[0-9a-f]{8}"}\Z'
"""How a record ends, even if the name of the field is damaged."""
CHECKSUM_FIELDS = ("sum", "check")
HEX_DIGITS = r"[0-9a-f]{8}"
OWN = "own"
COPIED_FIELDS = frozenset(
    (
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
)
"""The fields of a record that are the same in a copy."""
LARGE_FIELDS = ("message", "toolUseResult")


class ChainBroken(Exception):
    """Records before this one are missing or altered."""


class ChecksumChain:
    """The state of a chain: the checksums of all records so far."""

    def __init__(self) -> None:
        self._sum = 0
        self._last_stored: int | None = None
        self._last = b""
        """The last record of the chain; "" if `_content_sum` already includes it."""
        self._content_sum = 0
        self._last_content: int | None = None
        self._seen: set[int] = set()
        """The checksums of all verified records."""

    def copy(self) -> ChecksumChain:
        """A copy for records whose write may fail. The set of verified checksums is shared."""
        chain = ChecksumChain.__new__(ChecksumChain)
        chain.__dict__.update(self.__dict__)
        return chain

    def append(self, body: bytes) -> bytes:
        """Return the next record: `body`, a non-empty JSON object, with the checksums as its last fields.

        It is part of the chain from now on; append to a `copy` if its write may fail.
        """
        body, canonical = add_own_checksum(body)
        self._content_sum = self._last_content = zlib.crc32(canonical, self._content())
        body = b'%b,"sum":"%08x"}' % (body[:-1], self._content_sum)
        self._sum = self._last_stored = zlib.crc32(body, self._sum)
        self._seen.add(self._sum)
        return b"%b%b%08x%b" % (body[:-1], PREFIX, self._sum, SUFFIX)

    def verify(self, line: bytes) -> bool:
        """Whether a line is our next record. Raises ChainBroken if it continues from a damaged or missing record."""
        body = line[:-LENGTH]
        expected = zlib.crc32(b"}", zlib.crc32(body, self._sum))
        # Nearly every line is the expected record; one comparison decides.
        if line[-LENGTH:] == b"%b%08x%b" % (PREFIX, expected, SUFFIX):
            self._sum = self._last_stored = expected
            self._last = line
            self._seen.add(expected)
            return True
        if (ours := reformat(line)) != line:
            return self.verify(ours)
        checksums = find_checksums(line)
        if checksums is not None and checksums[1] in self._seen and is_intact(line):
            return False  # a repeated record: the stores of other programs repeat lines
        if checksums is not None and self._verify_content(line, *checksums):
            return True
        stored = read_checksum(line)
        if stored is None:
            return False
        # Does it continue from a record of ours that is damaged?
        last = self._last_stored
        follows_damaged = last is not None and zlib.crc32(b"}", zlib.crc32(body, last)) == stored
        self._last_stored = stored
        if follows_damaged:
            raise ChainBroken
        return False

    def _verify_content(self, line: bytes, total: int, check: int) -> bool:
        """Like `verify`, by canonical form. `check` is the checksum that the next record continues from."""
        canonical, last = canonical_bytes(line), self._last_content
        if zlib.crc32(canonical, self._content()) == total:
            self._content_sum, self._sum = total, check
            self._last_content, self._last_stored = total, check
            self._seen.add(check)
            return True
        self._last_content = total
        if last is not None and zlib.crc32(canonical, last) == total:
            raise ChainBroken
        return False

    @property
    def is_empty(self) -> bool:
        """Whether no record was verified yet."""
        return self._sum == 0

    def _content(self) -> int:
        """The checksum of the canonical forms so far. It is rarely needed, so it is computed on demand."""
        if self._last:
            found = re.fullmatch(SUM, self._last[-LENGTH - SUM_LENGTH : -LENGTH])
            self._content_sum = int(found[1], 16) if found else 0
            self._last_content, self._last = self._content_sum, b""
        return self._content_sum


def reformat(line: bytes) -> bytes:
    """Return a line that may be our record in our formatting; return any other line unchanged."""
    if b'"check"' not in line:
        return line
    try:
        found: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return line
    return msgspec.json.encode(found) if isinstance(found, dict) and next(reversed(found), "") == "check" else line


def has_checksum_fields(line: bytes) -> bool:
    """Whether a line ends with a field that has the shape of our checksum."""
    return re.compile(CHECKSUM_END).search(line, max(0, len(line) - LENGTH)) is not None


def read_checksum(line: bytes) -> int | None:
    """The value of `check` at the end of our record; None for any other line."""
    if line[-LENGTH : -LENGTH + len(PREFIX)] != PREFIX or line[-len(SUFFIX) :] != SUFFIX:
        return None
    digits = line[-LENGTH + len(PREFIX) : -len(SUFFIX)]
    try:
        stored = int(digits, 16)
    except ValueError:
        return None
    return stored if digits == b"%08x" % stored else None


# The canonical form, and the checksum of one record.


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
    for name in LARGE_FIELDS:
        if name in record:  # encoded once for both checksums
            record[name] = msgspec.Raw(msgspec.json.encode(record[name], order="deterministic"))
    record[OWN] = compute_own_checksum(record)
    body = b'%b,"%b":"%b"}' % (body[:-1], OWN.encode(), record[OWN].encode())
    return body, msgspec.json.encode(record, order="deterministic")


def compute_own_checksum(record: Json, session: str = "") -> str:
    """The checksum of one record, followed by that of its session (by default the one in `sessionId`)."""
    covered = {name: record[name] for name in COPIED_FIELDS.intersection(record)}
    session = session or session_checksum(str(record.get("sessionId")))
    return f"{zlib.crc32(session.encode() + msgspec.json.encode(covered, order='deterministic')):08x}{session}"


@lru_cache(maxsize=16)
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
    if record.get("sessionId") != session_id or stored[DIGITS:] == session_checksum(session_id):
        return False
    return stored == compute_own_checksum(record, stored[DIGITS:])


def find_checksums(line: bytes) -> tuple[int, int] | None:
    """The values of `sum` and `check`, wherever they are in the record; None unless it has both."""
    if b'"sum"' not in line or b'"check"' not in line:
        return None
    try:
        record = DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    total, check = (str(record.get(name)) for name in CHECKSUM_FIELDS)
    return (
        (int(total, 16), int(check, 16))
        if re.fullmatch(HEX_DIGITS, total) and re.fullmatch(HEX_DIGITS, check)
        else None
    )
