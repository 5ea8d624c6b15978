"""One transcript file: `Transcript` appends for the holder of the session, `TranscriptReader` reads for anyone.

Reading yields the longest part that is certainly intact. A partial or damaged end is skipped with a warning. Damage
before good records raises `DamagedSession`, because the entries after it would not fit those before. The next write
removes a partial line, which was never reported to a client.

Programs that list sessions look for the title and the tag near the start and the end of a file (session_summary.py).
They are lines of their own. `LabelTracker` repeats them after enough other lines; otherwise an older title would be
found, or none.

See also: the lines of an entry (entry_codec.py), the checksums (checksum_chain.py), lines of others (foreign_lines.py),
the holder (../lease.py).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from parley.errors import DamagedSession, SessionBusy, SessionError
from parley.protocol.base import Json, Struct, encode_json
from parley.stores.base import FOREIGN, TAKEN_OVER, Entry, Log
from parley.stores.files.checksum_chain import (
    DIGITS,
    OWN,
    ChainBroken,
    ChecksumChain,
    find_checksums,
    has_checksum_fields,
    is_copy,
)
from parley.stores.files.entry_codec import (
    BOUNDARIES,
    CONVERSATION,
    MIRRORED,
    EncodedLines,
    EntryContext,
    TranscriptDecoder,
    TranscriptEncoder,
    decode_entry,
)
from parley.stores.lease import Lease
from parley.workspace import private_files

BELOW, AGENT_BELOW = 2, 4
"""How many directories above a transcript are ours: `projects/<project>`, or `…/<session>/subagents`."""
LEAF = "last-prompt"
"""The type of line in which Claude Code names the line to continue from."""
DECODER = msgspec.json.Decoder()
COPIED = frozenset({"forkedFrom", MIRRORED})
"""The fields that mark a line as a copy of ours. Copies are not part of the chain."""
TAIL_BYTES = 65536
"""The part at the end of a file in which other programs look for labels."""
LABEL_FIELDS = {"custom-title": "customTitle", "ai-title": "aiTitle", "tag": "tag"}
LABEL_PREFIXES = tuple(b'{"type":"%b",' % kind.encode() for kind in LABEL_FIELDS)


class TranscriptReader:
    """Reads a transcript from its start. Afterwards it knows the state that the next line continues from."""

    def __init__(
        self,
        path: Path,
        session_id: str,
        warn: Callable[[str], None] = lambda text: None,
        *,
        of_agent: bool = False,
    ) -> None:
        """`of_agent`: the file is the transcript of a subagent."""
        self.chain = ChecksumChain()
        self.decoder = TranscriptDecoder()
        self.names_leaf = False
        """Whether another program wrote `last-prompt` lines, which name the line to continue from."""
        self.size_bytes = 0
        """The size of the file when it was read."""
        self._path = path
        self._session_id = session_id
        self._warn = warn
        self._of_agent = of_agent
        self._below = AGENT_BELOW if of_agent else BELOW

    def entries(self, after: int = -1) -> Iterator[Entry]:
        """Yield the entries with `seq > after`. Raises SessionError, DamagedSession."""
        try:
            with open(private_files.open_file(self._path, os.O_RDONLY, below=self._below), "rb") as file:
                self.size_bytes = os.fstat(file.fileno()).st_size
                ours = self._count_records(file)
                file.seek(0)
                found = self._decode_mixed(file) if ours is None else self._decode_records(islice(file, ours))
                yield from found if after < 0 else (entry for entry in found if entry.seq > after)
        except FileNotFoundError:
            return
        except OSError as exc:
            raise SessionError(f"cannot read the session from {self._path}: {exc.strerror}") from None

    def _count_records(self, file: BinaryIO) -> int | None:
        """The number of lines if all of them are our records, in order; otherwise None."""
        chain, count = ChecksumChain(), 0
        try:
            for raw in file:
                if not chain.verify(raw.rstrip(b"\n")) and not is_label(raw):
                    return None
                count += 1
        except ChainBroken:
            return None
        self.chain = chain
        return count

    def _decode_records(self, lines: Iterable[bytes]) -> Iterator[Entry]:
        """Yield the entries of a file that has only our records. It cannot have branches."""
        seq, session_id, of_agent = 0, self._session_id, self._of_agent
        for raw in lines:
            json = DECODER.decode(raw)
            found = decode_entry(json, session_id, seq, of_agent=of_agent)
            if found is not None:
                seq = found.seq + 1
                yield from self.decoder.feed(found, is_held=is_held(json))
        yield from self.decoder.blocks

    def _decode_mixed(self, file: BinaryIO) -> Iterator[Entry]:
        """Yield the entries of a file that is damaged or has lines of other programs. Raises DamagedSession."""
        seq, lost = 0, 0
        dropped = self._find_abandoned(file)
        for number, raw in enumerate(file, 1):
            line = self.read_line(raw, number)
            if line is None:
                lost = lost or number
                continue
            json, is_ours = line
            found = decode_entry(json, self._session_id, seq, of_agent=self._of_agent)
            if found is not None and not is_ours:
                found = self._validate(found, number)
            uuid = json.get("uuid") if found is None else found.message.get("uuid")
            if found is not None:
                seq = found.seq + 1
            if dropped and uuid in dropped:
                continue
            if found is not None:
                yield from self.decoder.feed(found, is_held=is_held(json))
            elif isinstance(uuid, str) and self._is_chained(json):
                yield from self.decoder.skip(uuid)
            self.names_leaf = self.names_leaf or json.get("type") == LEAF
        yield from self.decoder.blocks
        if lost:
            self._warn(f"line {lost} of {self._path} is incomplete or damaged; skipped")

    def _find_abandoned(self, file: BinaryIO) -> frozenset[str]:
        """The uuids of lines on inactive branches. Reads the file from its start and rewinds it."""
        from parley.stores.files.foreign_lines import find_abandoned, is_straight

        found: frozenset[str] = frozenset()
        if not is_straight(file):
            file.seek(0)
            found = find_abandoned(intact_lines(file, self._session_id))
        file.seek(0)
        return found

    def read_line(self, raw: bytes, number: int) -> tuple[Json, bool] | None:
        """The object of a line, and whether it is our next record; None if it is damaged.

        Raises DamagedSession.
        """
        body = raw.rstrip(b"\n")
        try:
            is_ours = self.chain.verify(body)
        except ChainBroken:
            raise DamagedSession(self._session_id, f"line {number - 1} of {self._path}") from None
        if not is_ours and not body.strip():
            return {}, False
        try:
            json = DECODER.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if not isinstance(json, dict):
            return {}, False
        if is_ours:
            return json, True
        if was_ours(json, body) and not (
            raw.endswith(b"\n") and is_intact_copy(json, body, self._session_id, self.chain)
        ):
            return None
        if json.get("type") == "assistant" and b'"tool_use"' in body and MIRRORED not in json:
            json[FOREIGN] = True  # no permission decisions on its calls are recorded
        return json, False

    def _is_chained(self, json: Json) -> bool:
        """Whether a line that is not an entry, such as an attachment, is part of the chain of parents."""
        return "parentUuid" in json and bool(json.get("isSidechain")) is self._of_agent

    def _validate(self, found: Entry, number: int) -> Entry | None:
        """Return an entry of another program if it is valid; otherwise warn and return None."""
        from parley.stores.files.foreign_lines import find_problem

        if (problem := find_problem(found)) is None:
            return found
        self._warn(f"line {number} of {self._path} is invalid and was skipped: {problem}")
        return None


def is_held(json: Json) -> bool:
    """Whether a `parley` line holds a block of an unfinished answer, whose final line comes later."""
    return json["type"] == "parley" and json.get("kind") in CONVERSATION


def intact_lines(lines: Iterable[bytes], session_id: str) -> Iterator[bytes]:
    """Yield the intact lines, up to the first missing record."""
    reader = TranscriptReader(Path(), session_id)
    for raw in lines:
        try:
            if reader.read_line(raw, 0) is not None:
                yield raw
        except DamagedSession:
            return


def was_ours(json: Json, body: bytes) -> bool:
    """Whether a line without a valid checksum was our record. Marked copies do not count."""
    is_marked = json.get("type") == "parley" or "seq" in json or "check" in json or has_checksum_fields(body)
    return is_marked and not (COPIED & json.keys())


def is_intact_copy(json: Json, body: bytes, session_id: str, chain: ChecksumChain) -> bool:
    """Whether a record outside the chain is an intact copy that another program made when it forked a session.

    Such a program drops our other records, so the neighbours of a copy are missing. Records of older versions have no
    `own` checksum. They count as copies if no record of the file has continued the chain yet and they are of a type
    that forks keep.
    """
    if OWN in json:
        return is_copy(body, session_id)
    is_older = find_checksums(body) is not None and not any(
        looks_like_own_checksum(name, value) for name, value in json.items()
    )
    return is_older and chain.is_empty and json.get("type") != "parley" and "seq" in json


def looks_like_own_checksum(name: str, value: object) -> bool:
    """Whether a field has the shape of the `own` checksum, even if its name is damaged."""
    return len(name) == len(OWN) and isinstance(value, str) and len(value) == 2 * DIGITS


def is_label(raw: bytes) -> bool:
    """Whether a line is a title or tag that was added from outside. Such lines are not part of the chain."""
    if not raw.startswith(LABEL_PREFIXES) or not raw.endswith(b"\n"):
        return False
    try:
        return not was_ours(msgspec.json.decode(raw), raw.rstrip(b"\n"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


class Transcript(Log):
    """The log of a session as a transcript file."""

    def __init__(
        self,
        path: Path,
        session_id: str,
        context: EntryContext,
        lease: Lease,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._path = path
        self._session_id = session_id
        self._context = context
        self._lease: Lease | None = lease
        self._warn = warn
        self._file: int | None = None
        self._read: TranscriptReader | None = None
        """The reader that read the file; None if it was not read yet."""
        self._end = 0
        """The size of the part of the file that we have read or written."""
        self._ends_in_partial_line = False
        """Whether the file ends without a newline."""
        self._labels = LabelTracker()
        self._encoder = TranscriptEncoder(session_id, context)
        self._chain = ChecksumChain()
        self._names_leaf = self._leaf_due = False
        """Whether the file has `last-prompt` lines, and whether the next message needs one."""

    def append(self, *entries: Entry) -> None:
        try:
            file = self._ensure_open()
            private_files.lock(file)  # a process that steals the session waits here for a write in progress
            try:
                self._write(file, self._encoder.encode(entries))
            finally:
                private_files.unlock(file)
        except OSError as exc:
            raise write_error(self._path, exc.errno, exc.strerror) from None

    def _write(self, file: int, encoded: EncodedLines) -> None:
        """Raises OSError, SessionError."""
        if self._lease is None or not self._lease.may_write():
            raise SessionBusy(self._session_id, TAKEN_OVER)
        self._read_new_lines(file)
        chain, records, leaf_due = self._chain.copy(), list[bytes](), self._leaf_due
        for json in encoded.lines:
            records.append(chain.append(encode_json(json)))
            if self._names_leaf:
                leaf_due = leaf_due or json["type"] in BOUNDARIES or json.get("kind") == "cut"
            if leaf_due and json["type"] in CONVERSATION:
                # Claude Code continues from the line that is named.
                records.append(encode_json({"type": LEAF, "leafUuid": json["uuid"], "sessionId": self._session_id}))
                leaf_due = False
        self._append_lines(file, b"".join(record + b"\n" for record in records))
        self._chain, self._leaf_due = chain, leaf_due
        self._encoder.commit(encoded)
        if due := self._labels.lines_to_repeat(self._end):
            with suppress(OSError, SessionError):  # not an error: the entry is written
                self._append_lines(file, due)

    def _append_lines(self, file: int, lines: bytes) -> None:
        """Raises OSError, SessionError."""
        if self._ends_in_partial_line:
            from parley.stores.files.repair import truncate_partial_line

            # A partial line, left by a crash or a full disk, must not run into the next one.
            self._ends_in_partial_line = not truncate_partial_line(file)
            self._end = os.fstat(file).st_size
        before = b"\n" if self._ends_in_partial_line else b""
        written = before + lines
        self._ends_in_partial_line = True
        if (count := os.write(file, written)) != len(written):
            if os.fstat(file).st_size == self._end + count:
                os.ftruncate(file, self._end)  # otherwise all but the newline could remain, and be read as a record
                self._ends_in_partial_line = bool(before)
            raise write_error(self._path, errno.ENOSPC, "the disk is full")
        self._ends_in_partial_line = False
        self._labels.feed(lines, self._end + len(written) - len(lines))
        self._end += len(written)

    def _read_new_lines(self, file: int) -> None:
        """Read what other processes appended: titles, tags, or part of one. Raises OSError, SessionError."""
        status = os.fstat(file)
        if status.st_nlink == 0 or status.st_size < self._end:
            raise self._deleted_error()
        if status.st_size > self._end:
            more = os.pread(file, status.st_size - self._end, self._end)
            self._labels.feed(more, self._end)
            self._ends_in_partial_line = not more.endswith(b"\n")
            self._end += len(more)

    def sync(self) -> None:
        try:
            if self._file is not None:
                os.fdatasync(self._file)
        except OSError as exc:
            raise write_error(self._path, exc.errno, exc.strerror) from None

    async def wait_synced(self) -> None:
        """The same as `sync`, without blocking the event loop."""
        from parley.stores.files.fdatasync import fdatasync

        try:
            if self._file is not None:
                await fdatasync(self._file)
        except OSError as exc:
            raise write_error(self._path, exc.errno, exc.strerror) from None

    def entries(self, after: int = -1) -> Iterator[Entry]:
        of_agent = bool(self._context.agent_id)
        reader = TranscriptReader(self._path, self._session_id, self._warn, of_agent=of_agent)
        yield from reader.entries(after)
        self._read = reader

    def close(self) -> None:
        if self._file is not None:
            if self._encoder.blocks:
                with suppress(OSError, SessionError):  # the next process that opens the session does it
                    self._write(self._file, self._encoder.release())
            os.close(self._file)
            self._file = None
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def _ensure_open(self) -> int:
        """The descriptor of the file, read and opened for appending. Raises OSError, SessionError."""
        below = AGENT_BELOW if self._context.agent_id else BELOW
        if self._read is None:
            with suppress(FileNotFoundError):
                private_files.stat_file(self._path, below=below, writes=True)
            for _ in self.entries():
                pass
        assert self._read is not None
        if self._file is None:
            self._file = self._open(self._read.size_bytes, below)
            decoder = self._read.decoder
            self._encoder.parent, self._encoder.blocks = decoder.parent, list(decoder.blocks)
            self._chain = self._read.chain
            self._names_leaf = self._leaf_due = self._read.names_leaf
        return self._file

    def _open(self, known: int, below: int) -> int:
        """Open the file, of which `known` bytes have been read. Raises OSError, SessionError."""
        flags = os.O_RDWR | os.O_APPEND | (0 if known else os.O_CREAT)
        try:
            file = private_files.open_file(self._path, flags, below=below)
        except FileNotFoundError:
            raise self._deleted_error() from None
        begin = max(known - TAIL_BYTES, 0)
        tail = os.pread(file, known - begin, begin)
        self._labels.feed(tail, begin)
        self._end, self._ends_in_partial_line = known, bool(tail) and not tail.endswith(b"\n")
        return file

    def _deleted_error(self) -> SessionError:
        return SessionError(f"the session file {self._path} was deleted or truncated while the session was open")


def write_error(path: Path, number: int | None, text: str | None) -> SessionError:
    error = SessionError(f"cannot write the session to {path}: {text}")
    if number in (errno.ENOSPC, errno.EDQUOT):
        error.error_code = errno.errorcode[number]
    return error


class LabelLine(Struct, frozen=True):
    line: bytes
    end: int
    """The offset of the end of the line."""


class LabelTracker:
    def __init__(self) -> None:
        self._last: dict[str, LabelLine] = {}

    def feed(self, data: bytes, at: int) -> None:
        """Track the labels in a part of the file. Lines without a newline are ignored."""
        *lines, _ = data.split(b"\n")
        for line in lines:
            at += len(line) + 1
            if line.startswith(LABEL_PREFIXES) and (json := decode_label(line)) is not None:
                self._last[json["type"]] = LabelLine(encode_json(json) + b"\n", at)

    def lines_to_repeat(self, end: int) -> bytes:
        """The lines to append to a file of `end` bytes; empty if no label is too far from the end."""
        return b"".join(
            label.line for label in self._last.values() if label.end > TAIL_BYTES and end - label.end > TAIL_BYTES // 2
        )


def decode_label(line: bytes) -> Json | None:
    """A label line without its sequence number and checksums, which are not repeated."""
    try:
        found: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    field = LABEL_FIELDS[found["type"]]
    if not isinstance(found.get(field), str):
        return None
    return {"type": found["type"], field: found[field], "sessionId": found.get("sessionId")}
