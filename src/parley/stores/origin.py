"""Whose a line of a transcript is that has no good checksum: was it ours once, is it a copy, is it a label?"""

from __future__ import annotations

import msgspec

from parley.protocol.base import Json
from parley.stores.chain import has_shape
from parley.stores.labels import BEGINNINGS
from parley.stores.line import MIRRORED

COPIED = frozenset({"forkedFrom", MIRRORED})
"""The fields by which a line says that it is a copy of ours. Copies are not chained."""


def was_ours(json: Json, body: bytes) -> bool:
    """Whether a line without a good checksum once had one. Whoever copies our lines says where they come from."""
    is_marked = json.get("type") == "parley" or "seq" in json or "check" in json or has_shape(body)
    return is_marked and not (COPIED & json.keys())


def is_label(raw: bytes) -> bool:
    """Whether a line is a title or a tag that somebody gave the session: these stand in no chain."""
    if not raw.startswith(BEGINNINGS) or not raw.endswith(b"\n"):
        return False
    try:
        return not was_ours(msgspec.json.decode(raw), raw.rstrip(b"\n"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
