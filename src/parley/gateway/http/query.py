"""The parameters of URLs."""

from __future__ import annotations

from starlette.datastructures import QueryParams

from parley.gateway.refusal import Refusal

LARGEST = 2**53 - 1
"""The largest number that JavaScript knows exactly."""


def read_number(query: QueryParams, name: str, default: int, most: int = LARGEST, code: str = "invalid_query") -> int:
    """Raises Refusal."""
    given = query.get(name)
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and len(given) <= 16 and int(given) <= most):
        raise Refusal(code, f"{name} must be a number from 0 to {most}, not {given!r:.50}")
    return int(given)


def read_text(query: QueryParams, name: str, most_chars: int = 1000) -> str:
    """Raises Refusal."""
    given = query.get(name, "")
    if len(given) > most_chars:
        raise Refusal("invalid_query", f"{name} is longer than {most_chars} characters")
    return given
