"""Read the start of a truncated line.

Clients write the type and id of a line before any long value, so the simple members before the first object or list are
enough to answer a line that was dropped.
"""

from __future__ import annotations

import re

import msgspec

from parley.protocol.base import Json

OPENING = rb"\s*\{"
MEMBER = rb'\s*("(?:[^"\\]|\\.)*")\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+|true|false|null)\s*,'


def read_members(head: bytes) -> Json:
    """The members of a JSON object before its first long or nested value."""
    found: Json = {}
    member = re.compile(MEMBER)
    match = re.match(OPENING, head)
    while match is not None and (match := member.match(head, match.end())) is not None:
        try:
            found[msgspec.json.decode(match[1], type=str)] = msgspec.json.decode(match[2])
        except (msgspec.DecodeError, UnicodeDecodeError):
            break
    return found
