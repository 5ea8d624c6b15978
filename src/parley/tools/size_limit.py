"""How much of a result fits on a line.

Clients cut the connection at a line of 1 MiB, so none is longer than 1,000,000 bytes.
What the host can do without is left out of a detail that is too long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from parley.protocol.base import Json

LINE_BYTES = 1_000_000
DETAIL_BYTES = LINE_BYTES - 50_000
"""The rest is for the model's part and the envelope."""


def fitting(detail: Json, spare: Mapping[str, Any]) -> Json:
    """The detail, where need be with a field of `spare` after the other replaced by what stands there for it."""
    for field, instead in spare.items():
        if len(msgspec.json.encode(detail)) <= DETAIL_BYTES:
            break
        detail = {**detail, field: instead}
    return detail
