"""What comes from outside, fit to be kept: texts that every reader of the log and every backend can take.

NUL, which databases and terminals refuse, and halves of surrogate pairs, which are no characters at all, become
U+FFFD. Bytes that are no UTF-8 have become that already where they were read.
"""

from __future__ import annotations

import re
from typing import Any

UNFIT = "[\0\ud800-\udfff]"
INSTEAD = "\N{REPLACEMENT CHARACTER}"


def sanitized(value: Any) -> Any:
    """A JSON value without what cannot be kept; the same object if there is nothing to change."""
    if isinstance(value, str):
        if value.isascii() and "\0" not in value:
            return value
        return re.sub(UNFIT, INSTEAD, value) if re.search(UNFIT, value) else value
    if isinstance(value, dict):
        return {sanitized(key): sanitized(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sanitized(item) for item in value]
    return value
