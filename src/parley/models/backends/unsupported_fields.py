"""Optional fields that a server rejects: they are dropped and the request is repeated.

unsupported = UnsupportedFields(warn)
while True:
    fields = ...                            # without unsupported.names
    try:
        ...                                 # send the request
        return
    except ModelError as exc:
        unsupported.record(exc, fields)     # raises exc if it is about something else

A server may also know another form of thinking than the one that is expected of a model (`ThinkingForms`). The other
form is then tried, because without the field the model would not think at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec

from parley.errors import ModelError
from parley.models.base import ModelRequest

BAD_REQUEST = (400, 422, 500)
"""Some servers report a request that they cannot validate as 500."""
REFUSAL_PATTERN = (
    r"(?i)extra (inputs|fields|parameters|arguments)|un(known|recogni[sz]ed|supported|expected)|additional propert"
    r"|(is|are|was) not (supported|permitted|allowed|recogni[sz]ed|available)|(does|do) not support"
)


UNKNOWN_FIELD = r"(?i)extra (inputs|fields|parameters|arguments)|additional propert"
"""The server knows no form of the field."""
REJECTED_FORM = (
    r"(?is)thinking\.type|\bthinking\b.*\btags?\b"
    r"|\b(adaptive|extended|manual|budget_tokens|between_tools)\b.*\b(not (supported|available|allowed)|unsupported)"
)
MAX_REASON_CHARS = 2_000
"""How much of an error is searched for the form: the search is slow in long texts."""
OTHER_FORMS = {"enabled": "adaptive", "adaptive": "enabled", "disabled": None, "between_tools": None}
"""What is sent instead of a form of thinking: another one, or no field."""


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
        self.drop(name, f"the model's server rejected the field {name!r} ({exc.message[:200]}); it is not sent again")

    def drop(self, name: str, reason: str) -> None:
        self.names.add(name)
        self._warn(f"warning: {reason}")


class ThinkingForms:
    """The forms of thinking that the server rejected for a model, and what it gets instead."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._rejected: set[tuple[str, str]] = set()
        """The name of a model, and a type of thinking."""
        self._warn = warn

    def apply(self, request: ModelRequest) -> ModelRequest:
        """The request in the form that the server accepts."""
        if request.thinking is None or (request.model, request.thinking["type"]) not in self._rejected:
            return request
        other = OTHER_FORMS[request.thinking["type"]]
        kept = {key: value for key, value in request.thinking.items() if key == "display"}
        budget = {"budget_tokens": request.max_tokens - 1} if other == "enabled" else {}
        thinking = None if other is None else {"type": other, **budget, **kept}
        return msgspec.structs.replace(request, thinking=thinking)

    def switch(self, exc: ModelError, sent: ModelRequest) -> bool:
        """Whether the error rejects the form of thinking that was sent, and there is one that was not rejected."""
        form = "" if sent.thinking is None else sent.thinking["type"]
        other = OTHER_FORMS.get(form, form)
        if exc.status not in BAD_REQUEST or other == form or (sent.model, other) in self._rejected:
            return False
        reason = exc.message[:MAX_REASON_CHARS]
        if re.search(UNKNOWN_FIELD, reason) or not re.search(REJECTED_FORM, reason):
            return False
        self._rejected.add((sent.model, form))
        instead = "no thinking field" if other is None else f"thinking {other!r}"
        self._warn(
            f"warning: the server of {sent.model} rejected thinking {form!r} ({reason[:200]}); it gets {instead}"
        )
        return True


def find_rejected_field(exc: ModelError, sent: Iterable[str]) -> str | None:
    """The optional field that the error rejects, of those that were sent."""
    if exc.status not in BAD_REQUEST or re.search(REFUSAL_PATTERN, exc.message) is None:
        return None
    return next((name for name in sent if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", exc.message)), None)
