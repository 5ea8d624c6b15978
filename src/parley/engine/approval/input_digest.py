"""The hash of an input, which binds an approval to exactly the input that was shown.

It is part of the permission request and of the journalled decision, and is checked again right before the tool runs.
"""

from __future__ import annotations

import msgspec

from parley.protocol.base import Json


def input_digest(input: Json) -> str:
    """SHA-256 of the input as JSON with sorted keys and no spaces, in UTF-8."""
    import hashlib

    return hashlib.sha256(msgspec.json.encode(input, order="sorted")).hexdigest()
