"""Fields that a backend may not know: an error that names one costs the field, not the turn.

dropped = Dropped(warn)
while True:
    fields = ...                        # without what is in dropped.names
    try:
        ...                             # ask
        return
    except ModelError as flaw:
        dropped.note(flaw, fields)      # raises the flaw where it is about something else
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from parley.errors import ModelError

BAD_REQUEST = (400, 422)
COMPLAINT = (
    r"(?i)extra (inputs|fields|parameters|arguments)|un(known|recogni[sz]ed|supported|expected)|additional propert"
    r"|(is|are|was) not (supported|permitted|allowed|recogni[sz]ed|available)|(does|do) not support"
)


class Dropped:
    """What a server turned out not to know: it is not sent again."""

    def __init__(self, warn: Callable[[str], None], names: Iterable[str] = ()) -> None:
        self.names = set(names)
        self._warn = warn

    def note(self, flaw: ModelError, sent: Iterable[str]) -> None:
        """Drop the field that a refusal complains about; whoever asked may ask again. Raises any other flaw."""
        name = blamed(flaw, sent)
        if name is None:
            raise flaw
        self.names.add(name)
        self._warn(
            f"warning: the model's server does not take {name!r} ({flaw.message[:200]}); it is left out from now on"
        )


def blamed(flaw: ModelError, sent: Iterable[str]) -> str | None:
    """The optional field that a refusal complains about, of those that were sent."""
    if flaw.status not in BAD_REQUEST or re.search(COMPLAINT, flaw.message) is None:
        return None
    return next((name for name in sent if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", flaw.message)), None)
