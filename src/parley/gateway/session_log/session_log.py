"""The log of one session in a file, with the state that follows from it.

    log = SessionLog(path)                  read it, or begin it
    log.record(TitledRecord(title="x"))     applied, and in the file, when this returns
    number = log.add_line(line)             a line that clients see
    log.read(after)                         the lines after a number

The file is a list of frames: the length of the payload, its checksum, the number of the frame, the payload (records,
`records.py`). One call writes one frame with one `write`, so records that belong together are stored together or not at
all. A frame is in the file before anybody hears of it and survives the death of the process; it is not synced to the
device. A last frame that is cut was never answered: it is dropped. Any other damage is reported, and nothing is
written to that file.

The numbers of lines are the cursors of clients. They follow from the log alone: line n is the n-th line record.
"""

from __future__ import annotations

import os
import struct
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from zlib import crc32

from parley.errors import LogDamaged, SessionError, explain_os_errors
from parley.gateway.session_log.records import (
    AnyRecord,
    LineRecord,
    NewerVersion,
    SessionState,
    decode_records,
    encode_records,
)
from parley.protocol.peek import peek
from parley.workspace import private_files

MAGIC = b"parley1\n"
"""The first bytes of the file: what it is, and the version of its format."""
HEADER = struct.Struct("<III")
READ_BYTES = 256 * 1024
SEARCH_BYTES = 32 * 1024 * 1024
"""How much is searched at a time for a message, so that others can read in between."""

Follower = Callable[["SessionLog", Sequence[AnyRecord]], None]


class SessionLog:
    def __init__(self, path: Path, follow: Follower = lambda log, records: None) -> None:
        """Open the file, or create it. `follow` gets what is recorded from now on. Raises SessionError."""
        self.session_id = path.stem
        self.state = SessionState()
        self.size_bytes = len(MAGIC)
        self._path = path
        self._follow = follow
        self._frames = 0
        self._positions = array("Q")
        """Where the frame of each line begins. A line may be long, so none is read to find another."""
        with explain_os_errors(f"cannot open {path}"):
            self._file = private_files.open_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, make_folders=False)
        try:
            self._scan()
        except BaseException:
            self.close()
            raise

    def _scan(self) -> None:
        """Read the frames and apply their records. Raises SessionError."""
        size = os.fstat(self._file).st_size
        start = os.pread(self._file, len(MAGIC), 0)
        if start != MAGIC:
            if not MAGIC.startswith(start):
                raise SessionError(f"{self._path} is not the log of a session that this Parley reads")
            os.ftruncate(self._file, 0)  # it was being created
            os.write(self._file, MAGIC)
            return
        for position, number, checksum, payload in self._walk(len(MAGIC), size):
            if number != self._frames + 1 or crc32(payload) != checksum:
                break
            try:
                self._apply(decode_records(payload), position)
            except (LogDamaged, NewerVersion) as exc:
                raise type(exc)(f"{self._path}: {exc}") from None
            self._frames = number
            self.size_bytes = position + HEADER.size + len(payload)
        if self.size_bytes != size:
            self._drop_torn(size)

    def _drop_torn(self, size: int) -> None:
        """Remove a last frame that is not complete. Raises SessionError if more than that is wrong."""
        header = os.pread(self._file, HEADER.size, self.size_bytes)
        is_last = len(header) < HEADER.size or not any(header)
        if not is_last:
            is_last = self.size_bytes + HEADER.size + HEADER.unpack(header)[0] >= size
        if not is_last:
            raise LogDamaged(f"{self._path} is damaged after byte {self.size_bytes}; restore it from a copy")
        os.ftruncate(self._file, self.size_bytes)

    def _walk(self, position: int, end: int, file: int | None = None) -> Iterator[tuple[int, int, int, memoryview]]:
        """The complete frames from a position on: position, number, checksum and payload. Raises SessionError."""
        data, at = memoryview(b""), 0
        file = self._file if file is None else file

        def has(count: int) -> bool:
            nonlocal data, at, position
            if len(data) - at < count:
                position, at = position + at, 0
                if position + count > end:
                    return False
                with explain_os_errors(f"cannot read {self._path}"):
                    data = memoryview(os.pread(file, max(READ_BYTES, count), position))
            return len(data) - at >= count

        while has(HEADER.size):
            length, checksum, number = HEADER.unpack_from(data, at)
            if not has(HEADER.size + length):
                return
            payload = data[at + HEADER.size : at + HEADER.size + length]
            yield position + at, number, checksum, payload
            at += HEADER.size + length

    # Write.

    def record(self, *records: AnyRecord) -> None:
        """Store records together, and apply them. At most one is a line. Raises SessionError."""
        self.restore(records)
        self._follow(self, records)

    def restore(self, *frames: Sequence[AnyRecord]) -> None:
        """Store several frames without a word to the follower, which knows them. Raises SessionError."""
        payloads = [encode_records(records) for records in frames]
        heads = [
            HEADER.pack(len(payload), crc32(payload), number)
            for number, payload in enumerate(payloads, self._frames + 1)
        ]
        data = b"".join(part for pair in zip(heads, payloads, strict=True) for part in pair)
        with explain_os_errors(f"cannot write {self._path}"):
            written = os.write(self._file, data)
            if written != len(data):
                os.ftruncate(self._file, self.size_bytes)
                raise OSError(None, "the device is full")
        for records, payload in zip(frames, payloads, strict=True):
            self._apply(records, self.size_bytes)
            self.size_bytes += HEADER.size + len(payload)
        self._frames += len(frames)

    def _apply(self, records: Sequence[AnyRecord], position: int) -> None:
        for record in records:
            self.state.apply(record)
            if type(record) is LineRecord:
                self._positions.append(position)

    def add_line(self, line: bytes, *records: AnyRecord, at: float | None = None) -> int:
        """Store a line with the records that belong to it, and return its number. Raises SessionError.

        `at`: when it was said, if not now.
        """
        number = self.last + 1
        self.record(LineRecord(number=number, at=time.time() if at is None else at, data=line), *records)
        return number

    # Read.

    @property
    def last(self) -> int:
        """The number of the last line."""
        return self.state.last_line

    def read(self, after: int, max_bytes: int = READ_BYTES) -> list[tuple[int, bytes]]:
        """Lines after a number, at least one if there is one, up to about `max_bytes`. Raises SessionError."""
        return [(line.number, line.data) for line in self.lines(after, max_bytes)]

    def lines(self, after: int, max_bytes: int, until: int | None = None) -> list[LineRecord]:
        """The same with the times, and up to a number. Raises SessionError."""
        after = max(after, 0)
        until = self.last if until is None else min(until, self.last)
        selected: list[LineRecord] = []
        if after >= until:
            return selected
        size = 0
        for _, _, _, payload in self._walk(self._positions[after], self.size_bytes):
            for record in decode_records(payload):
                if type(record) is LineRecord:
                    selected.append(record)
                    size += len(record.data)
            if selected and (size >= max_bytes or selected[-1].number >= until):
                break
        return selected

    def line(self, number: int) -> bytes:
        """Raises SessionError."""
        (line,) = self.lines(number - 1, 0)
        return line.data

    def read_before(self, before: int, limit: int, max_bytes: int) -> list[LineRecord]:
        """The last lines before a number, at least one if there is one, up to `max_bytes`. Raises SessionError."""
        last = min(before, self.last + 1) - 1
        if last < 1:
            return []
        end = self._positions[last] if last < self.last else self.size_bytes
        first = bisect_left(self._positions, end - max_bytes, max(0, last - limit), last - 1)
        return self.lines(first, max_bytes=end, until=last)

    def all_records(self) -> Iterator[AnyRecord]:
        """Everything that the log has. May be called in a thread, also while it is closed. Raises SessionError."""
        with explain_os_errors(f"cannot read {self._path}"), open(self._path, "rb") as file:
            for _, _, _, payload in self._walk(len(MAGIC), self.size_bytes, file.fileno()):
                yield from decode_records(payload)

    def find(self, uuid: str, start: int = 0) -> tuple[int | None, int | None]:
        """The number of the first message with an id, and where to continue the search if there is more to be read.

        `start`: where an earlier call says. May be called in a thread. Raises SessionError.
        """
        wanted, left = uuid.encode(errors="replace"), SEARCH_BYTES
        with explain_os_errors(f"cannot read {self._path}"), open(self._path, "rb") as file:
            for position, _, _, payload in self._walk(max(start, len(MAGIC)), self.size_bytes, file.fileno()):
                if left <= 0:
                    return None, position
                left -= len(payload)
                if wanted not in bytes(payload):  # most frames need not be decoded
                    continue
                left -= len(payload)
                for record in decode_records(payload):
                    if type(record) is LineRecord and peek(record.data).uuid == uuid:
                        return record.number, None
        return None, None

    def close(self) -> None:
        """A later use fails, and does not reach the file that gets this descriptor next."""
        descriptor, self._file = self._file, -1
        if descriptor >= 0:
            os.close(descriptor)

    def remove(self) -> None:
        """Delete the file."""
        self.close()
        self._path.unlink(missing_ok=True)
