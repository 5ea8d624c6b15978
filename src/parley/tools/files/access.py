"""What the file tools share: paths, what the model has read, encodings, and the size of a result.

Read state. Older models must read a file before they change it; newer ones need not. In both cases a change by someone
else since the last read is detected.

Encodings. The file tools work on UTF-8. A UTF-16 file is converted to UTF-8 and back. UTF-8 is used unchanged, byte
order mark included, and so is a file in another, unknown encoding, whose bytes beyond ASCII are then left alone.

Sizes. Clients close the connection at a line of 1 MiB, so no line is longer than 1,000,000 bytes. Optional fields are
omitted from a detail that is too long.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Mapping
from typing import Any

import msgspec

from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import Context
from parley.workspace.base import FileSnapshot, Scope

SMALL_BYTES = 1 << 20
LARGEST_BYTES = 256 << 20
"""A file is held in memory while it is read or changed."""
NOTES = "Read"
LINE_BYTES = 1_000_000
DETAIL_BYTES = LINE_BYTES - 50_000
"""The rest is for the content and the envelope."""
UTF8 = "utf-8"
UNKNOWN = "unknown"
UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
MARKS = {name: mark for mark, name in UTF16.items()}
SAMPLE_BYTES = 8192
CHUNK_BYTES = 1 << 20
CONTROLS = bytes(set(range(32)) - set(b"\a\b\t\n\v\f\r\x1b"))
"""Bytes that do not occur in text."""


def resolve_path(path: str, context: Context) -> str:
    """The absolute path; a relative one starts at the working directory. Raises ToolError."""
    if path.startswith("~"):
        raise ToolError(f"`~` is not expanded here: give {path!r} as an absolute path.")
    return os.path.join(context.state.cwd, path)


def read_whole_file(path: str, context: Context, reach: Scope) -> FileSnapshot:
    """The whole file. Raises ToolError."""
    found = context.files.read(path, reach, SMALL_BYTES)
    if found.size <= len(found.data):
        return found
    if found.size > LARGEST_BYTES:
        raise ToolError(f"{path} is too large for this tool ({found.size} bytes). Use Grep, or a command in Bash.")
    return context.files.read(path, reach)


class SeenFile(Struct, frozen=True, kw_only=True):
    """A file as the model last saw or wrote it."""

    mtime_ns: int
    inode: int
    content_hash: int
    whole: bool


class ReadState(Struct, frozen=True, kw_only=True):
    """The state of a file that the model wants to change."""

    read: bool = False
    changed: bool = False
    """It changed since the model saw it."""
    whole: bool = False
    """The model has seen all of it."""


def mark_seen(context: Context, snapshot: FileSnapshot, *, whole: bool) -> None:
    files: dict[str, SeenFile] = context.state.notes.setdefault(NOTES, {})
    files[snapshot.path] = SeenFile(
        mtime_ns=snapshot.mtime_ns, inode=snapshot.inode, content_hash=hash(snapshot.data), whole=whole
    )


def check_read_state(context: Context, snapshot: FileSnapshot) -> ReadState:
    """The state of this file. Raises ToolError if the model must read it first."""
    seen: SeenFile | None = context.state.notes.get(NOTES, {}).get(snapshot.path)
    if seen is None:
        if context.session.must_read_first():
            raise ToolError("File has not been read yet. Read it first, then change it.")
        return ReadState()
    same = (seen.mtime_ns, seen.inode) == (snapshot.mtime_ns, snapshot.inode)
    # A file that was only touched, or written anew with the same content, has not changed for the model.
    changed = not same and seen.content_hash != hash(snapshot.data)
    return ReadState(read=True, changed=changed, whole=seen.whole and not changed)


def fit_detail(detail: Json, spare: Mapping[str, Any]) -> Json:
    """The detail; if it is too long, the fields in `spare` are replaced by their values there, one after another."""
    for field, instead in spare.items():
        if len(msgspec.json.encode(detail)) <= DETAIL_BYTES:
            break
        detail = {**detail, field: instead}
    return detail


def detect(data: bytes) -> str | None:
    """The encoding of a text; None for binary data."""
    sample = data[:SAMPLE_BYTES]
    # The mark of UTF-32 begins like that of UTF-16; two zero bytes follow.
    if (name := UTF16.get(data[:2])) is not None and sample[2:4] != b"\0\0":
        return name
    controls = len(sample) - len(sample.translate(None, CONTROLS))
    if b"\0" in sample or controls * 10 > len(sample):
        return None
    return UTF8 if is_utf8(data) else UNKNOWN


def is_utf8(data: bytes) -> bool:
    """Checked piece by piece: one emoji would make the text of a large file four times its size."""
    if data.isascii():
        return True
    decoder = codecs.getincrementaldecoder(UTF8)()
    try:
        for start in range(0, len(data), CHUNK_BYTES):
            decoder.decode(data[start : start + CHUNK_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def to_utf8(data: bytes, encoding: str, *, errors: str = "strict") -> bytes:
    """The bytes of a file as UTF-8. Raises ToolError if they do not match their byte order mark."""
    if encoding not in MARKS:
        return data
    try:
        return data[2:].decode(encoding, errors).encode(UTF8)
    except UnicodeDecodeError as exc:
        raise ToolError(
            f"The file has the byte order mark of {encoding} but is invalid at byte {exc.start + 2}; left unchanged."
        ) from None


def from_utf8(body: bytes, encoding: str) -> bytes:
    """The bytes in the encoding of the file."""
    if encoding not in MARKS:
        return body
    return MARKS[encoding] + body.decode(UTF8).encode(encoding)


def as_utf8(text: str) -> bytes:
    """The text of the model as bytes. Raises ToolError for a lone surrogate."""
    try:
        return text.encode(UTF8)
    except UnicodeEncodeError as exc:
        raise ToolError(
            f"The text has half a surrogate pair at position {exc.start} and cannot be written; send whole characters."
        ) from None


def as_text(body: bytes) -> str:
    """Text to show: no byte order mark, invalid bytes replaced."""
    return body.decode("utf-8-sig", "replace")
