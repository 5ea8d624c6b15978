"""What the beginning of a line tells, if the rest of it is gone.

Clients write the kind and the id of a line before anything long, so the simple members
up to the first object or list are enough to answer a line that could not be kept.
"""

from __future__ import annotations

import re

import msgspec

from parley.protocol.base import Json

OPENING = rb"\s*\{"
MEMBER = rb'\s*("(?:[^"\\]|\\.)*")\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+|true|false|null)\s*,'


def read_members(head: bytes) -> Json:
    """The members of a JSON object that stand before its first long or nested one."""
    found: Json = {}
    member = re.compile(MEMBER)
    place = re.match(OPENING, head)
    while place is not None and (place := member.match(head, place.end())) is not None:
        try:
            found[msgspec.json.decode(place[1], type=str)] = msgspec.json.decode(place[2])
        except (msgspec.DecodeError, UnicodeDecodeError):
            break
    return found
