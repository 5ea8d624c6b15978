"""Fields that a backend may not know: an error that names one costs the field, not the turn. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from parley.errors import ModelError

BAD_REQUEST = (400, 422)
COMPLAINT = (
    r"(?i)extra (inputs|fields|parameters|arguments)|un(known|recogni[sz]ed|supported|expected)|additional propert"
    r"|(is|are|was) not (supported|permitted|allowed|recogni[sz]ed|available)|(does|do) not support"
)


def blamed(flaw: ModelError, sent: Iterable[str]) -> str | None:
    """The optional field that a refusal complains about, of those that were sent."""
    if flaw.status not in BAD_REQUEST or re.search(COMPLAINT, flaw.message) is None:
        return None
    return next((name for name in sent if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", flaw.message)), None)


def warning(name: str, flaw: ModelError) -> str:
    return f"warning: the model's server does not take {name!r} ({flaw.message[:200]}); it is left out from now on"
