"""What a record says, whoever spells it: the same bytes for the same JSON object.

Whoever reads a record and writes it again may put its fields in another order (databases sort them),
write 1.0 as 1 (JavaScript knows one kind of number) and choose other escapes. None of that changes what it says.

    of(b'{"b": 1.0, "a": 2, "check": "…"}') == of(b'{"a":2,"b":1}')
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

MARKS = ("sum", "check")
DIGITS = re.compile(r"[0-9a-f]{8}")


def number(spelled: str) -> float | int:
    """A number with nothing behind its point is a whole one."""
    value = float(spelled)
    return int(value) if value.is_integer() else value


DECODER = msgspec.json.Decoder(dict[str, Any], float_hook=number)


def of(line: bytes) -> bytes:
    """What the object of a line says, without the checksums. The line is one that can be read."""
    found = DECODER.decode(line)
    for mark in MARKS:
        found.pop(mark, None)
    return msgspec.json.encode(found, order="deterministic")


def marks(line: bytes) -> tuple[int, int] | None:
    """The checksums of a record, wherever in it they stand; None for a line without both."""
    if b'"sum"' not in line or b'"check"' not in line:
        return None
    try:
        found = DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    total, check = (str(found.get(mark)) for mark in MARKS)
    return (int(total, 16), int(check, 16)) if DIGITS.fullmatch(total) and DIGITS.fullmatch(check) else None
