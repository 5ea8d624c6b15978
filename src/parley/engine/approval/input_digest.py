"""The hash of an input, by which an approval belongs to exactly what was shown and to nothing else.

It is in the permission request, in the log, and looked at again right before a tool runs.
"""

from __future__ import annotations

import msgspec

from parley.protocol.base import Json


def digest(input: Json) -> str:
    """SHA-256 of the input as JSON with sorted keys and no blanks, in UTF-8."""
    import hashlib

    return hashlib.sha256(msgspec.json.encode(input, order="sorted")).hexdigest()
