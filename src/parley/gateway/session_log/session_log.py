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
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

import msgspec

from parley.errors import SessionError
from parley.gateway.session_log.records import (
    AnyRecord,
    DamagedRecords,
    LineRecord,
    UnknownRecords,
    decode_records,
    encode_records,
)
from parley.gateway.session_log.state import SessionState
from parley.protocol.base import Struct
from parley.workspace import private_files

MAGIC = b"parley1\n"
"""The first bytes of the file: what it is, and the version of its format."""
HEADER = struct.Struct("<III")
READ_BYTES = 256 * 1024
SEARCH_BYTES = 32 * 1024 * 1024
"""How much is searched at a time for a message, so that others can read in between."""

Follower = Callable[["SessionLog", Sequence[AnyRecord]], None]


class MessageId(Struct):
    uuid: Any = ""


_decoder = msgspec.json.Decoder(MessageId)


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
        try:
            self._file = private_files.open_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, make_folders=False)
        except OSError as exc:
            raise SessionError(f"cannot open {path}: {exc.strerror}") from None
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
            except (DamagedRecords, UnknownRecords) as exc:
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
            raise DamagedRecords(f"{self._path} is damaged after byte {self.size_bytes}; restore it from a copy")
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
                try:
                    data = memoryview(os.pread(file, max(READ_BYTES, count), position))
                except OSError as exc:
                    raise SessionError(f"cannot read {self._path}: {exc.strerror}") from None
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
        try:
            written = os.write(self._file, data)
            if written != len(data):
                os.ftruncate(self._file, self.size_bytes)
                raise OSError(None, "the device is full")
        except OSError as exc:
            raise SessionError(f"cannot write {self._path}: {exc.strerror}") from None
        for records, payload in zip(frames, payloads, strict=True):
            self._apply(records, self.size_bytes)
            self.size_bytes += HEADER.size + len(payload)
        self._frames += len(frames)

    def _apply(self, records: Sequence[AnyRecord], position: int) -> None:
        for record in records:
            self.state.apply(record)
            if type(record) is LineRecord:
                self._positions.append(position)

    def add_line(self, line: bytes, *records: AnyRecord) -> int:
        """Store a line with the records that belong to it, and return its number. Raises SessionError."""
        number = self.last + 1
        self.record(LineRecord(number=number, at=time.time(), data=line), *records)
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
        try:
            with open(self._path, "rb") as file:
                for _, _, _, payload in self._walk(len(MAGIC), self.size_bytes, file.fileno()):
                    yield from decode_records(payload)
        except OSError as exc:
            raise SessionError(f"cannot read {self._path}: {exc.strerror}") from None

    def find(self, uuid: str, start: int = 0) -> tuple[int | None, int | None]:
        """The number of the first message with an id, and where to continue the search if there is more to be read.

        `start`: where an earlier call says. May be called in a thread. Raises SessionError.
        """
        wanted, position, stop = uuid.encode(errors="replace"), start, start + SEARCH_BYTES
        try:
            with open(self._path, "rb") as file:
                while position < stop:
                    file.seek(position)
                    chunk, at, checked = file.read(READ_BYTES + len(wanted) - 1), 0, 0
                    if not chunk:
                        return None, None
                    while (at := chunk.find(wanted, at)) >= 0:
                        number, frame_end = self._find_frame(file, position + at)
                        if frame_end > position + at:
                            begin = self._positions[number - 1]
                            file.seek(begin + HEADER.size)
                            if has_message(file.read(frame_end - begin - HEADER.size), uuid):
                                return number, None
                            checked, stop = frame_end, stop - (frame_end - begin)
                        at = max(at + 1, checked - position)
                    position = max(position + READ_BYTES, checked)
        except OSError as exc:
            raise SessionError(f"cannot read {self._path}: {exc.strerror}") from None
        return None, position

    def _find_frame(self, file: BinaryIO, position: int) -> tuple[int, int]:
        """The last line that begins before a position, and where its frame ends; zeros if there is none."""
        number = bisect_right(self._positions, position)
        if number == 0:
            return 0, 0
        begin = self._positions[number - 1]
        file.seek(begin)
        return number, begin + HEADER.size + int(HEADER.unpack(file.read(HEADER.size))[0])

    def close(self) -> None:
        """A later use fails, and does not reach the file that gets this descriptor next."""
        descriptor, self._file = self._file, -1
        if descriptor >= 0:
            os.close(descriptor)

    def remove(self) -> None:
        """Delete the file."""
        self.close()
        self._path.unlink(missing_ok=True)


def has_message(payload: bytes, uuid: str) -> bool:
    """Whether the line of a frame is the message with an id."""
    return any(type(record) is LineRecord and read_uuid(record.data) == uuid for record in decode_records(payload))


def read_uuid(line: bytes) -> str:
    """The id of a message; empty if it has none."""
    return str(_decoder.decode(line).uuid)
