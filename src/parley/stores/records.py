"""Append-only files of numbered records, one JSON object per line: recordings and results.

    {"parley_records":"conversation","version":1,"command":["claude"]}       the header: what the file is
    {"n":1,"at_ms":3.2,"from":"client","line":"..."}                         records, numbered without gaps
    {"n":2,"at_ms":9.7,"from":"engine","line":"..."}

    writer = RecordWriter.create(path, CONVERSATION, header)
    writer.append(3.2, {"from": "client", "line": "..."})
    found = read_records(path, CONVERSATION)
    found.decode_header(WireHeader), [record.decode(decoder) for record in found.records]

This module knows the frame: the header's kind and version, and the number and time of a record. Each kind of file has
its own fields beside them. A record is written at once, so that a crash costs at most the last line, which readers
drop. A file of another kind or version, or one that is something else, is refused and left as it is.

See also: the kinds in `stores/wire_recording.py`, `models/recording.py`, `evals/results.py` and `sdk/batch.py`.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Self, TypeVar

import msgspec

from parley.errors import UsageError
from parley.protocol.base import Json, Struct
from parley.workspace import private_files

T = TypeVar("T")


class RecordKind(Struct, frozen=True):
    """What a file contains. Another version of its fields has another number."""

    name: str
    title: str
    use: str
    """What to give such a file to, named when another part gets it."""
    version: int = 1


CONVERSATION = RecordKind("conversation", "a recording of a conversation", "parley replay FILE")
MODEL = RecordKind("model", "a recording of a model", "--model replay:FILE")
EVALUATION = RecordKind("evaluation", "a result of parley eval", "parley eval compare")
BATCH = RecordKind("batch", "a record of run_many", "run_many(..., record=FILE)")
KINDS = {kind.name: kind for kind in (CONVERSATION, MODEL, EVALUATION, BATCH)}


class RecordFrame(Struct, frozen=True):
    """What all records have."""

    n: int
    at_ms: float


class HeaderFrame(Struct, frozen=True):
    """What all headers have."""

    parley_records: str
    version: int


_frame = msgspec.json.Decoder(RecordFrame)


class FiledRecord(Struct, frozen=True):
    """A record as it is in its file."""

    place: str
    """The file and the line, for errors: `conversation.jsonl:3`."""
    number: int
    """Its line in the file, from 1."""
    at_ms: float
    data: bytes

    def decode(self, decoder: msgspec.json.Decoder[T]) -> T:
        """The fields of the record. Raises UsageError."""
        return decode_line(self.data, decoder, self.place)


class RecordFile(Struct, frozen=True):
    """A file that was read."""

    name: str
    header: bytes
    records: list[FiledRecord]
    whole_bytes: int
    """Where the last whole line ends; what follows was cut by a crash."""

    def decode_header(self, kind: type[T]) -> T:
        """The fields of the header. Raises UsageError."""
        return decode_line(self.header, msgspec.json.Decoder(kind), f"{self.name}:1")


class RecordWriter:
    """Writes a file, which stays open. After an error it is closed: a record that was cut must stay the last.

    A file has one writer at a time: it holds a lock, which ends with its process.
    """

    def __init__(self, descriptor: int) -> None:
        """Raises BlockingIOError if another process writes the file."""
        self._descriptor = descriptor
        self._last = 0
        if not private_files.lock(descriptor, timeout_seconds=0):
            self.close()
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    @classmethod
    def create(cls, path: Path, kind: RecordKind, header: Struct) -> Self:
        """A new file that only this user can read. Raises OSError, FileExistsError if there is a file."""
        writer = cls(private_files.open_file(path, private_files.NEW | os.O_APPEND, make_folders=False))
        writer._write(encode_header(kind, header))
        return writer

    @classmethod
    def resume(cls, path: Path, kind: RecordKind) -> tuple[Self, RecordFile]:
        """Continue a file: its writer, and what it has. A last line that was cut is removed.

        Raises UsageError, OSError, BlockingIOError if another process writes the file.
        """
        writer = cls(private_files.open_file(path, os.O_RDWR | os.O_APPEND))
        try:
            found = read_records(path, kind)
        except BaseException:
            writer.close()
            raise
        os.ftruncate(writer._descriptor, found.whole_bytes)
        writer._last = len(found.records)
        return writer, found

    @property
    def is_open(self) -> bool:
        return self._descriptor >= 0

    def append(self, at_ms: float, fields: Json | Struct) -> None:
        """Raises OSError."""
        self._write(frame({"n": self._last + 1, "at_ms": round(at_ms, 3)}, fields))
        self._last += 1

    def close(self) -> None:
        if self.is_open:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, data: bytes) -> None:
        try:
            private_files.write_all(self._descriptor, data)
        except OSError:
            self.close()
            raise


def encode_header(kind: RecordKind, header: Struct) -> bytes:
    """The first line of a file."""
    return frame({"parley_records": kind.name, "version": kind.version}, header)


def frame(head: Json, fields: Json | Struct) -> bytes:
    """A line: the frame, then the fields."""
    body = msgspec.json.encode(fields)
    return msgspec.json.encode(head)[:-1] + (b"," if len(body) > 2 else b"") + body[1:] + b"\n"


def read_records(path: str | Path, kind: RecordKind) -> RecordFile:
    """Raises UsageError, also if the file is of another kind, and OSError."""
    return parse_records(Path(path).read_bytes(), str(path), kind)


def parse_records(data: bytes, name: str, kind: RecordKind) -> RecordFile:
    """Raises UsageError. A last line without its newline is dropped."""
    whole = data.rfind(b"\n") + 1
    lines = data[:whole].split(b"\n")[:-1]
    check_header(lines[0] if lines else b"", name, kind)
    records: list[FiledRecord] = []
    for number, line in enumerate(lines[1:], 2):
        found = decode_line(line, _frame, f"{name}:{number}")
        if found.n != number - 1:
            raise UsageError(f"{name}:{number}: found record {found.n}, expected record {number - 1}")
        records.append(FiledRecord(f"{name}:{number}", number, found.at_ms, line))
    return RecordFile(name, lines[0], records, whole)


def check_header(line: bytes, name: str, kind: RecordKind) -> None:
    """Raises UsageError if the line is not the header of such a file."""
    try:
        header = msgspec.json.decode(line, type=HeaderFrame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        reason = "its first line is not a header of Parley's records" if line else "it has no header"
        raise UsageError(f"{name} is not {kind.title}: {reason}") from None
    if header.parley_records != kind.name:
        other = KINDS.get(header.parley_records)
        found = repr(header.parley_records) if other is None else f"{other.title} (for `{other.use}`)"
        raise UsageError(f"{name} is not {kind.title}, but {found}")
    if header.version != kind.version:
        raise UsageError(f"{name} has version {header.version}; only version {kind.version} is supported")


def decode_line(data: bytes, decoder: msgspec.json.Decoder[T], place: str) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        text = str(exc)
        raise UsageError(f"{place}: {text[:1].lower()}{text[1:]}") from None
