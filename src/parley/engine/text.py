"""What comes from outside, fit to be kept: texts that every reader of the log and every backend can take.

NUL, which databases and terminals refuse, and halves of surrogate pairs, which are no characters at all, become
U+FFFD. Bytes that are no UTF-8 have become that already where they were read.
"""

from __future__ import annotations

import re
from typing import Any

UNSTORABLE = "[\0\ud800-\udfff]"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def sanitize(value: Any) -> Any:
    """A JSON value without what cannot be kept; the same object if there is nothing to change."""
    if isinstance(value, str):
        if value.isascii() and "\0" not in value:
            return value
        return re.sub(UNSTORABLE, REPLACEMENT, value) if re.search(UNSTORABLE, value) else value
    if isinstance(value, dict):
        return {sanitize(key): sanitize(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sanitize(item) for item in value]
    return value
