"""How a text file spells its text in bytes.

The file tools work on UTF-8. A UTF-16 file is turned into that and back; a file in
UTF-8 is taken as it is, byte order mark included; so is a file in some old encoding
that nobody named ("unknown"), whose bytes beyond ASCII are then left alone.
"""

from __future__ import annotations

import codecs

from parley.errors import ToolError

UTF8 = "utf-8"
UNKNOWN = "unknown"
UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
MARKS = {name: mark for mark, name in UTF16.items()}
SAMPLE_BYTES = 8192
CHUNK_BYTES = 1 << 20
CONTROLS = bytes(set(range(32)) - set(b"\a\b\t\n\v\f\r\x1b"))
"""Bytes that texts do without."""


def recognise(data: bytes) -> str | None:
    """The encoding of a text, or None if this is no text."""
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
    """A file's bytes as the tools work on them. Raises ToolError if they are not what their mark says."""
    if encoding not in MARKS:
        return data
    try:
        return data[2:].decode(encoding, errors).encode(UTF8)
    except UnicodeDecodeError as flaw:
        raise ToolError(
            f"The file has the mark of {encoding} but is broken at byte {flaw.start + 2}; it is left as it is."
        ) from None


def from_utf8(body: bytes, encoding: str) -> bytes:
    """Back to the file's own bytes."""
    if encoding not in MARKS:
        return body
    return MARKS[encoding] + body.decode(UTF8).encode(encoding)


def as_utf8(text: str) -> bytes:
    """What the model wrote, as bytes. Raises ToolError for half a character."""
    try:
        return text.encode(UTF8)
    except UnicodeEncodeError as flaw:
        raise ToolError(
            f"The text has half a surrogate pair at position {flaw.start} and cannot be written; send whole characters."
        ) from None


def as_text(body: bytes) -> str:
    """For people and the model: no byte order mark, and a sign where bytes make no character."""
    return body.decode("utf-8-sig", "replace")
