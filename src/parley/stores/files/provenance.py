"""Whose a line of a transcript is that has no good checksum: was it ours once, is it a copy, is it a label?"""

from __future__ import annotations

import msgspec

from parley.protocol.base import Json
from parley.stores import canonical_json
from parley.stores.checksum_chain import Seal, has_shape
from parley.stores.files.entry_codec import MIRRORED
from parley.stores.files.title_tags import BEGINNINGS

COPIED = frozenset({"forkedFrom", MIRRORED})
"""The fields by which a line says that it is a copy of ours. Copies are not chained."""


def was_ours(json: Json, body: bytes) -> bool:
    """Whether a line without a good checksum once had one. Whoever copies our lines says where they come from."""
    is_marked = json.get("type") == "parley" or "seq" in json or "check" in json or has_shape(body)
    return is_marked and not (COPIED & json.keys())


def is_copy(json: Json, body: bytes, session_id: str, seal: Seal) -> bool:
    """Whether a record that does not follow on is whole: another engine copied it into a fork of its own.

    That engine drops our other records, so the neighbours of a copy are gone. Records of older versions have no
    checksum of their own; where no record of the file has followed on yet, and none of them is one that a fork
    drops, they are taken for copies.
    """
    if canonical_json.OWN in json:
        return canonical_json.is_copy(body, session_id)
    is_older = canonical_json.marks(body) is not None and not any(
        is_like_own(name, value) for name, value in json.items()
    )
    return is_older and seal.is_empty and json.get("type") != "parley" and "seq" in json


def is_like_own(name: str, value: object) -> bool:
    """Whether a field has the shape of a record's own checksum, whatever became of its name."""
    return (
        len(name) == len(canonical_json.OWN)
        and isinstance(value, str)
        and len(value) == 2 * canonical_json.DIGITS_OF_SUM
    )


def is_label(raw: bytes) -> bool:
    """Whether a line is a title or a tag that somebody gave the session: these stand in no chain."""
    if not raw.startswith(BEGINNINGS) or not raw.endswith(b"\n"):
        return False
    try:
        return not was_ours(msgspec.json.decode(raw), raw.rstrip(b"\n"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
