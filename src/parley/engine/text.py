"""Makes texts from outside safe to store: every reader of the log and every backend can take them.

NUL, which databases and terminals refuse, and lone surrogates become U+FFFD. Invalid UTF-8 is replaced when
it is read.
"""

from __future__ import annotations

import re
from typing import Any

UNSTORABLE = "[\0\ud800-\udfff]"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def sanitize(value: Any) -> Any:
    """A JSON value without such characters; the same object if there are none."""
    if isinstance(value, str):
        if value.isascii() and "\0" not in value:
            return value
        return re.sub(UNSTORABLE, REPLACEMENT, value) if re.search(UNSTORABLE, value) else value
    if isinstance(value, dict):
        return {sanitize(key): sanitize(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sanitize(item) for item in value]
    return value
