"""Optional fields that a server rejects: they are dropped and the request is repeated.

unsupported = UnsupportedFields(warn)
while True:
    fields = ...                            # without unsupported.names
    try:
        ...                                 # send the request
        return
    except ModelError as exc:
        unsupported.record(exc, fields)     # raises exc if it is about something else
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from parley.errors import ModelError

BAD_REQUEST = (400, 422, 500)
"""Some servers report a request that they cannot validate as 500."""
REFUSAL_PATTERN = (
    r"(?i)extra (inputs|fields|parameters|arguments)|un(known|recogni[sz]ed|supported|expected)|additional propert"
    r"|(is|are|was) not (supported|permitted|allowed|recogni[sz]ed|available)|(does|do) not support"
)


class UnsupportedFields:
    """The fields that a server rejected. They are not sent again."""

    def __init__(self, warn: Callable[[str], None], names: Iterable[str] = ()) -> None:
        self.names = set(names)
        self._warn = warn

    def record(self, exc: ModelError, sent: Iterable[str]) -> None:
        """Drop the field that an error names, so that the request can be repeated. Raises any other error."""
        name = find_rejected_field(exc, sent)
        if name is None:
            raise exc
        self.names.add(name)
        self._warn(
            f"warning: the model's server rejected the field {name!r} ({exc.message[:200]}); it is not sent again"
        )


def find_rejected_field(exc: ModelError, sent: Iterable[str]) -> str | None:
    """The optional field that the error rejects, of those that were sent."""
    if exc.status not in BAD_REQUEST or re.search(REFUSAL_PATTERN, exc.message) is None:
        return None
    return next((name for name in sent if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", exc.message)), None)
