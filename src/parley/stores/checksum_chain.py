"""Records that are chained by checksums, so that damage anywhere in a file is found.

Each record ends in a checksum of itself and of all records before it. Lines without one are
somebody else's; they may stand between ours and are no part of the chain. What cannot be read
is skipped as long as our next record follows on our last good one: then nothing of ours was
lost, it was half a line of a full disk. A record that does not follow on shows a hole.

There are two checksums: `check` of the bytes, which is quick, and `sum` of what they say (canonical_json.py).
A record that somebody wrote again with other blanks or escapes, or with its fields in another order, as
databases do, is still the same record. `own` is of the record alone: by it a copy in a fork that another engine made
is known to be whole, though its neighbours are gone.

    seal = Seal()
    record = seal.on(b'{"type":"user"}')     # {"type":"user","own":"…","sum":"…","check":"…"}
    seal.holds(record)                       # True: it follows on
"""

from __future__ import annotations

import re
import zlib
from typing import Any

import msgspec

from parley.stores import canonical_json

BEFORE, BEHIND = b',"check":"', b'"}'
DIGITS = 8
LENGTH = len(BEFORE) + DIGITS + len(BEHIND)
SUM, SUM_LENGTH = re.compile(rb',"sum":"([0-9a-f]{8})"'), 17
SHAPE = re.compile(rb',"[^"]{5}":"[0-9a-f]{8}"}\Z')
"""How a record ends, whatever became of the name of the field."""


class Hole(Exception):
    """Records of ours are missing or altered before this one."""


class Seal:
    """The state of a chain: the checksums of all records so far."""

    def __init__(self) -> None:
        self._sum = 0
        self._last_stored: int | None = None
        self._last = b""
        """The last record of the chain; "" if its content is summed up already."""
        self._content_sum = 0
        self._last_content: int | None = None
        self._seen: set[int] = set()
        """The checksums of the records that hold."""

    def copy(self) -> Seal:
        """For records that may not be written after all. What is known of those so far is shared."""
        made = Seal()
        made.__dict__.update(self.__dict__)
        return made

    def on(self, body: bytes) -> bytes:
        """The next record, with its checksums as its last fields. `body` is a JSON object that is not empty.

        It is part of the chain when `holds` has seen it: a write may fail.
        """
        body, said = canonical_json.with_own(body)
        body = b'%b,"sum":"%08x"}' % (body[:-1], zlib.crc32(said, self._content()))
        return b"%b%b%08x%b" % (body[:-1], BEFORE, zlib.crc32(body, self._sum), BEHIND)

    def holds(self, line: bytes) -> bool:
        """Whether a line is a record of ours that follows on the last one. Raises Hole if it follows on another."""
        body = line[:-LENGTH]
        follows_on = zlib.crc32(b"}", zlib.crc32(body, self._sum))
        # One comparison tells what nearly every line is: a record in its place.
        if line[-LENGTH:] == b"%b%08x%b" % (BEFORE, follows_on, BEHIND):
            self._sum = self._last_stored = follows_on
            self._last = line
            self._seen.add(follows_on)
            return True
        if (ours := respelled(line)) != line:
            return self.holds(ours)
        marks = canonical_json.marks(line)
        if marks is not None and marks[1] in self._seen and canonical_json.is_whole(line):
            return False  # the same once more: stores of other programs repeat lines
        if marks is not None and self._holds_content(line, *marks):
            return True
        stored = checksum(line)
        if stored is None:
            return False
        # It follows on the damaged one before it, or on one that is not there at all: both were ours.
        last = self._last_stored
        follows_damaged = last is not None and zlib.crc32(b"}", zlib.crc32(body, last)) == stored
        self._last_stored = stored
        if follows_damaged:
            raise Hole
        return False

    def _holds_content(self, line: bytes, total: int, check: int) -> bool:
        """The same by what a record says, however it is spelled; `check` is what the next one follows on."""
        said, last = canonical_json.of(line), self._last_content
        if zlib.crc32(said, self._content()) == total:
            self._content_sum, self._sum = total, check
            self._last_content, self._last_stored = total, check
            self._seen.add(check)
            return True
        self._last_content = total
        if last is not None and zlib.crc32(said, last) == total:
            raise Hole
        return False

    @property
    def is_empty(self) -> bool:
        """Whether no record has held yet."""
        return self._sum == 0

    def _content(self) -> int:
        """The checksum of what all records say. It is seldom wanted, so it is looked up when it is."""
        if self._last:
            found = SUM.fullmatch(self._last[-LENGTH - SUM_LENGTH : -LENGTH])
            self._content_sum = int(found[1], 16) if found else 0
            self._last_content, self._last = self._content_sum, b""
        return self._content_sum


def respelled(line: bytes) -> bytes:
    """A line that may be one of ours, spelled as we do; any other as it is."""
    if b'"check"' not in line:
        return line
    try:
        found: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return line
    return msgspec.json.encode(found) if isinstance(found, dict) and next(reversed(found), "") == "check" else line


def has_shape(line: bytes) -> bool:
    """Whether a line ends as only our records do."""
    return SHAPE.search(line, max(0, len(line) - LENGTH)) is not None


def checksum(line: bytes) -> int | None:
    """What a record of ours says of itself; None for any other line."""
    if line[-LENGTH : -LENGTH + len(BEFORE)] != BEFORE or line[-len(BEHIND) :] != BEHIND:
        return None
    digits = line[-LENGTH + len(BEFORE) : -len(BEHIND)]
    try:
        stored = int(digits, 16)
    except ValueError:
        return None
    return stored if digits == b"%08x" % stored else None
