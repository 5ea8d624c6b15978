"""Recordings of a conversation between a client and an engine, line by line.

    {"parley_recording": 1, "command": ["claude", "--print"], "started_at": "2026-11-17T14:55:00.000Z"}
    {"at_ms": 3.2, "from": "client", "line": "{\\"type\\":\\"user\\", ...}"}
    {"at_ms": 9.7, "from": "engine", "line": "{\\"type\\":\\"system\\", ...}"}
    {"at_ms": 9.8, "from": "engine_stderr", "line": "a warning"}
    {"at_ms": 20.1, "from": "client", "eof": true}
    {"at_ms": 31.0, "exit_code": 0}

`line` is the text as it was sent, without the newline; `"eol": false` if no newline followed. Bytes that are not UTF-8
are in `base64` instead. `at_ms` counts from the start of the engine. Without the last line, the recording was cut.

`parley tap` writes recordings and `parley replay` replays them (`testing/replay/`). Recordings of a model have another
format (`parley.models.recording`).
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from parley.errors import UsageError
from parley.protocol.base import Json, Struct
from parley.workspace import private_files

VERSION = 1
SENDERS: Final = ("client", "engine", "engine_stderr")
Sender = Literal["client", "engine", "engine_stderr"]
SHOWN_CHARS = 60


class WireHeader(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line of a recording."""

    command: tuple[str, ...]
    """What was started as the engine."""
    started_at: str = ""
    cwd: str = ""
    env: tuple[str, ...] = ()
    """The names of the variables that the engine got. Their values are not recorded."""
    recorder: str = ""


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
    """Writes a recording. Every line is written at once, so that a crash keeps what was recorded.

    What is written must have no secrets: redact it before (`parley.models.redaction`).
    """

    def __init__(self, path: Path, header: WireHeader) -> None:
        """Raises UsageError. An existing file is not touched."""
        try:
            self._file = private_files.open_file(path, private_files.NEW | os.O_APPEND, make_folders=False)
        except FileExistsError:
            raise UsageError(
                f"{path} already exists; recordings are not overwritten: remove it, or name another file"
            ) from None
        except OSError as exc:
            raise UsageError(f"cannot create recording {path}: {exc.strerror}") from None
        self._write({"parley_recording": VERSION, **msgspec.to_builtins(header)})

    def line(self, at_ms: float, sender: Sender, data: bytes, *, eol: bool = True) -> None:
        """Write a line of the conversation, given without its newline. Raises OSError."""
        entry: Json = {"at_ms": round(at_ms, 3), "from": sender}
        try:
            entry["line"] = data.decode()
        except UnicodeDecodeError:
            entry["base64"] = base64.b64encode(data).decode()
        self._write(entry if eol else {**entry, "eol": False})

    def eof(self, at_ms: float, sender: Sender) -> None:
        """Write that a stream has ended. Raises OSError."""
        self._write({"at_ms": round(at_ms, 3), "from": sender, "eof": True})

    def end(self, at_ms: float, exit_code: int) -> None:
        """Write the last line, and close the file. Raises OSError."""
        self._write({"at_ms": round(at_ms, 3), "exit_code": exit_code})
        self.close()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, entry: Json) -> None:
        data = msgspec.json.encode(entry) + b"\n"
        while data:
            data = data[os.write(self._file, data) :]


def read_wire_recording(path: str | os.PathLike[str], *, allow_cut: bool = False) -> WireRecording:
    """Raises UsageError that names the line, also for a recording without its end unless `allow_cut` is set."""
    name = os.fspath(path)
    try:
        data = Path(name).read_bytes()
    except OSError as exc:
        raise UsageError(f"cannot read recording {name}: {exc.strerror}") from None
    whole, _, half = data.rpartition(b"\n")
    texts = whole.split(b"\n") if whole else []
    if half and not allow_cut:
        raise make_error(
            name, len(texts) + 1, f"a line that is cut after {len(half)} bytes", "a whole line, with a newline"
        )
    if not texts:
        raise make_error(name, 1, "an empty file", 'a header such as {"parley_recording": 1, "command": ["claude"]}')
    header = read_header(texts[0], name)
    lines: list[WireLine] = []
    for number, text in enumerate(texts[1:], 2):
        entry = read_object(text, name, number)
        if "exit_code" in entry:
            if number != len(texts):
                raise make_error(name, number, "an exit code, and lines after it", "the exit code as the last line")
            return WireRecording(name, header, lines, read_key(entry, "exit_code", int, name, number))
        lines.append(read_line(entry, name, number))
    if not allow_cut:
        raise make_error(
            name, len(texts) + 1, "the end of the file", 'the last line, {"exit_code": N}: the recording is cut'
        )
    return WireRecording(name, header, lines)


def read_header(text: bytes, name: str) -> WireHeader:
    """Raises UsageError."""
    entry = read_object(text, name, 1)
    if "parley_recording" not in entry:
        more = " (a recording of a model: use --model replay:FILE)" if entry.get("type") == "tape" else ""
        raise make_error(name, 1, f"{show(text)}{more}", 'a header with "parley_recording": 1')
    if entry["parley_recording"] != VERSION:
        raise make_error(name, 1, f"version {entry['parley_recording']!r}", f"version {VERSION}; use a newer Parley")
    try:
        return msgspec.convert(entry, WireHeader)
    except msgspec.ValidationError as exc:
        raise make_error(name, 1, str(exc), 'a header with "command": [words of the engine]') from None


def read_line(entry: Json, name: str, number: int) -> WireLine:
    """Raises UsageError."""
    sender = entry.get("from")
    if sender not in SENDERS:
        raise make_error(name, number, f'"from": {sender!r}', f"one of {', '.join(SENDERS)}")
    at_ms = float(read_key(entry, "at_ms", (int, float), name, number))
    if entry.get("eof") is True:
        return WireLine(at_ms, sender, b"", eof=True, number=number)
    if "base64" in entry:
        try:
            data = base64.b64decode(read_key(entry, "base64", str, name, number), validate=True)
        except ValueError:
            raise make_error(name, number, "text that is not base64", "bytes as base64") from None
    else:
        data = read_key(entry, "line", str, name, number).encode()
    return WireLine(at_ms, sender, data, eol=entry.get("eol") is not False, number=number)


def read_object(text: bytes, name: str, number: int) -> Json:
    try:
        entry = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise make_error(name, number, f"{show(text)} ({exc})", "a JSON object") from None
    if not isinstance(entry, dict):
        raise make_error(name, number, show(text), "a JSON object")
    return entry


def read_key(entry: Json, key: str, kind: type | tuple[type, ...], name: str, number: int) -> Any:
    """The value of a key. Raises UsageError if it is absent or of another kind."""
    value = entry.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        wanted = "a text" if kind is str else "a number"
        raise make_error(
            name, number, f'"{key}": {msgspec.json.encode(value).decode()[:SHOWN_CHARS]}', f'{wanted} as "{key}"'
        )
    return value


def make_error(name: str, number: int, found: str, expected: str) -> UsageError:
    return UsageError(f"{name}:{number}: found {found}, expected {expected}")


def show(text: bytes) -> str:
    shown = text[:SHOWN_CHARS].decode(errors="replace")
    return repr(shown) + ("…" if len(text) > SHOWN_CHARS else "")
