"""Detect duplicate keys in JSON objects.

Decoders use the last one. A reader that uses the first (a proxy, a log, a person) sees a different decision than the
one that takes effect, so a line that carries a decision must not have any.
"""

from __future__ import annotations

from typing import Any


class _DuplicateKey(Exception):
    pass


def find_duplicate_key(data: bytes | str) -> str | None:
    """Describe the first duplicate key of a JSON text that was already decoded; None if all are unique."""
    import json  # most sessions do not need it

    text = data if isinstance(data, str) else data.removeprefix(b"\xef\xbb\xbf").decode(errors="replace")
    try:
        # Numbers stay strings: long ones would raise an error, and their values do not matter here.
        json.loads(text, object_pairs_hook=_check, parse_int=str, parse_float=str)
    except _DuplicateKey as exc:
        return f"duplicate key {str(exc)!r:.100}"
    except (ValueError, RecursionError) as exc:
        return f"the keys cannot be checked: {exc}"
    return None


def _check(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _DuplicateKey(key)
            seen.add(key)
