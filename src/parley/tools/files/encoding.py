"""The encoding of text files.

The file tools work on UTF-8. A UTF-16 file is converted to UTF-8 and back. UTF-8 is used unchanged, byte order mark
included, and so is a file in another, unknown encoding, whose bytes beyond ASCII are then left alone.
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
"""Bytes that do not occur in text."""


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
