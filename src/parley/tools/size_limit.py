"""Limit the size of a result to one line.

Clients close the connection at a line of 1 MiB, so no line is longer than 1,000,000 bytes. Optional fields are
omitted from a detail that is too long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from parley.protocol.base import Json

LINE_BYTES = 1_000_000
DETAIL_BYTES = LINE_BYTES - 50_000
"""The rest is for the content and the envelope."""


def fit_detail(detail: Json, spare: Mapping[str, Any]) -> Json:
    """The detail; if it is too long, the fields in `spare` are replaced by their values there, one after another."""
    for field, instead in spare.items():
        if len(msgspec.json.encode(detail)) <= DETAIL_BYTES:
            break
        detail = {**detail, field: instead}
    return detail
