"""Recordings of a conversation between a client and an engine, line by line, as records (`stores/records.py`).

    {"parley_records":"conversation","version":1,"command":["claude","--print"],"started_at":"2026-11-17T14:55:00.000Z"}
    {"n":1,"at_ms":3.2,"from":"client","line":"{\\"type\\":\\"user\\", ...}"}
    {"n":2,"at_ms":9.7,"from":"engine","line":"{\\"type\\":\\"system\\", ...}"}
    {"n":3,"at_ms":9.8,"from":"engine_stderr","line":"a warning"}
    {"n":4,"at_ms":20.1,"from":"client","eof":true}
    {"n":5,"at_ms":31.0,"exit_code":0}

`line` is the text as it was sent, without the newline; `"eol": false` if no newline followed. Bytes that are not UTF-8
are in `base64` instead. `at_ms` counts from the start of the engine. Without the last record, the recording was cut.

`parley tap` writes recordings, a gateway exports them, and `parley replay` replays them (`fake/replay.py`).
`recorder.py` removes secrets.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import msgspec

from parley.errors import UsageError, explain_os_errors
from parley.protocol.base import Struct
from parley.stores.records import CONVERSATION, FiledRecord, RecordWriter, encode_header, frame, read_records

Sender = Literal["client", "engine", "engine_stderr"]


class Direction(StrEnum):
    """As the engine sees it."""

    IN = "in"
    OUT = "out"
    ERR = "err"
    """What the engine writes to stderr."""


SENDERS: dict[Direction, Sender] = {
    Direction.IN: "client",
    Direction.OUT: "engine",
    Direction.ERR: "engine_stderr",
}
DIRECTIONS = {sender: direction for direction, sender in SENDERS.items()}

Record = tuple[int, float, Direction, int, Any]
"""The number, the time in seconds, the direction, the size in bytes, and the line: JSON, or text if it is not JSON."""


class KeptLine(Struct, frozen=True, kw_only=True):
    """A line without secrets, or the end of a stream."""

    record: Record
    data: bytes
    """Without the newline."""
    eol: bool = True
    eof: bool = False


class WireHeader(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The header of a recording."""

    command: tuple[str, ...]
    """What was started as the engine."""
    started_at: str = ""
    cwd: str = ""
    env: tuple[str, ...] = ()
    """The names of the variables that the engine got. Their values are not recorded."""
    recorder: str = ""


class WireEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of a record: a line, the end of a stream, or the exit code."""

    sender: Sender | None = msgspec.field(name="from", default=None)
    line: str | None = None
    base64: bytes | None = None
    eol: bool = True
    eof: bool = False
    exit_code: int | None = None


_entry = msgspec.json.Decoder(WireEntry)


class WireLine(Struct, frozen=True):
    """One line of the conversation, or the end of a stream."""

    at_ms: float
    sender: Sender
    data: bytes
    """Without the newline."""
    eol: bool = True
    """Whether a newline followed."""
    eof: bool = False
    """Whether this is the end of the stream, and no line."""
    number: int = 0
    """Its line in the file, from 1."""


class WireRecording(Struct, frozen=True):
    """A recorded conversation."""

    name: str
    header: WireHeader
    lines: list[WireLine]
    """With the ends of streams."""
    exit_code: int | None = None
    """Negative if a signal ended the engine; None if the recording was cut."""

    def sent_by(self, sender: Sender) -> list[bytes]:
        """The whole lines of one sender, in order."""
        return [line.data for line in self.lines if line.sender == sender and line.eol and not line.eof]


class WireRecorder:
    """Writes a recording. What is written must have no secrets: `CleanLines` removes them."""

    def __init__(self, path: Path, header: WireHeader) -> None:
        """Raises UsageError. An existing file is not touched."""
        try:
            self._file = RecordWriter.create(path, CONVERSATION, header)
        except FileExistsError:
            raise UsageError(
                f"{path} already exists; recordings are not overwritten: remove it, or name another file"
            ) from None
        except OSError as exc:
            raise UsageError(f"cannot create recording {path}: {exc.strerror}") from None

    def add(self, line: KeptLine) -> None:
        """Write a line, or the end of a stream. Raises OSError."""
        _, at, direction, *_ = line.record
        sender = SENDERS[direction]
        if line.eof:
            entry = WireEntry(sender=sender, eof=True)
        else:
            try:
                entry = WireEntry(sender=sender, line=line.data.decode(), eol=line.eol)
            except UnicodeDecodeError:
                entry = WireEntry(sender=sender, base64=line.data, eol=line.eol)
        self._file.append(at * 1000, entry)

    def end(self, at: float, exit_code: int) -> None:
        """Write the last record, and close the file. Raises OSError."""
        self._file.append(at * 1000, WireEntry(exit_code=exit_code))
        self.close()

    def close(self) -> None:
        self._file.close()


def encode_recording(header: WireHeader, records: Sequence[Record]) -> bytes:
    """Records without secrets as a recording that ends after the last of them."""
    start = records[0][1] if records else 0.0
    entries = [
        (at, WireEntry(sender=SENDERS[direction], line=line if isinstance(line, str) else encode_line(line)))
        for _, at, direction, _, line in records
    ]
    end = entries[-1][0] if entries else start
    entries += [(end, WireEntry(sender="client", eof=True)), (end, WireEntry(exit_code=0))]
    frames = [
        frame({"n": number, "at_ms": round((at - start) * 1000, 3)}, entry)
        for number, (at, entry) in enumerate(entries, 1)
    ]
    return b"".join((encode_header(CONVERSATION, header), *frames))


def encode_line(line: Any) -> str:
    return msgspec.json.encode(line).decode()


def read_wire_recording(path: str | os.PathLike[str], *, allow_cut: bool = False) -> WireRecording:
    """Raises UsageError that names the line, also for a recording without its end unless `allow_cut` is set."""
    name = os.fspath(path)
    with explain_os_errors(f"cannot read recording {name}", UsageError):
        found = read_records(name, CONVERSATION)
    header, lines, exit_code = found.decode_header(WireHeader), list[WireLine](), None
    for record in found.records:
        if exit_code is not None:
            raise UsageError(f"{record.place}: found a record after the exit code, which must be the last")
        entry = record.decode(_entry)
        if entry.exit_code is None:
            lines.append(make_line(record, entry))
        exit_code = entry.exit_code
    if exit_code is None and not allow_cut:
        end = len(found.records) + 2
        raise UsageError(f'{name}:{end}: found no exit code ({{"exit_code": N}}) at the end: the recording is cut')
    return WireRecording(name, header, lines, exit_code)


def make_line(record: FiledRecord, entry: WireEntry) -> WireLine:
    """Raises UsageError."""
    data = entry.line.encode() if entry.line is not None else entry.base64
    if entry.sender is None or (data is None and not entry.eof):
        raise UsageError(f'{record.place}: found no line, expected "from" and one of "line", "base64" and "eof"')
    return WireLine(record.at_ms, entry.sender, data or b"", entry.eol, entry.eof, record.number)


def decode_line(data: bytes, direction: Direction = Direction.OUT) -> Any:
    """The JSON of a line, or its text if it is not JSON."""
    if direction is not Direction.ERR:
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    return data.decode(errors="replace")
