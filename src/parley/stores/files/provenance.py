"""Classify transcript lines without a valid checksum: a damaged record of ours, a copy, or a title or tag line."""

from __future__ import annotations

import msgspec

from parley.protocol.base import Json
from parley.stores.checksum_chain import DIGITS, OWN, ChecksumChain, find_checksums, has_checksum_fields, is_copy
from parley.stores.files.entry_codec import MIRRORED
from parley.stores.files.title_tags import LABEL_PREFIXES

COPIED = frozenset({"forkedFrom", MIRRORED})
"""The fields that mark a line as a copy of ours. Copies are not part of the chain."""


def was_ours(json: Json, body: bytes) -> bool:
    """Whether a line without a valid checksum was our record. Marked copies do not count."""
    is_marked = json.get("type") == "parley" or "seq" in json or "check" in json or has_checksum_fields(body)
    return is_marked and not (COPIED & json.keys())


def is_intact_copy(json: Json, body: bytes, session_id: str, chain: ChecksumChain) -> bool:
    """Whether a record outside the chain is an intact copy that another program made when it forked a session.

    Such a program drops our other records, so the neighbours of a copy are missing. Records of older versions have no
    `own` checksum. They count as copies if no record of the file has continued the chain yet and they are of a type
    that forks keep.
    """
    if OWN in json:
        return is_copy(body, session_id)
    is_older = find_checksums(body) is not None and not any(
        looks_like_own_checksum(name, value) for name, value in json.items()
    )
    return is_older and chain.is_empty and json.get("type") != "parley" and "seq" in json


def looks_like_own_checksum(name: str, value: object) -> bool:
    """Whether a field has the shape of the `own` checksum, even if its name is damaged."""
    return len(name) == len(OWN) and isinstance(value, str) and len(value) == 2 * DIGITS


def is_label(raw: bytes) -> bool:
    """Whether a line is a title or tag that was added from outside. Such lines are not part of the chain."""
    if not raw.startswith(LABEL_PREFIXES) or not raw.endswith(b"\n"):
        return False
    try:
        return not was_ours(msgspec.json.decode(raw), raw.rstrip(b"\n"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
