"""Keys that a JSON object has twice.

Decoders take the last one. A reader of the same line that takes the first (a proxy, a log, a person) then sees another
decision than the one that takes effect, so a line that decides something must not have any.
"""

from __future__ import annotations

from typing import Any


class _Doubled(Exception):
    pass


def find_doubled(data: bytes | str) -> str | None:
    """What is wrong with the keys of a JSON text that was decoded before: one is there twice, however it is spelled."""
    import json  # not needed for a session in which the peer is asked nothing

    text = data if isinstance(data, str) else data.removeprefix(b"\xef\xbb\xbf").decode(errors="replace")
    try:
        # Numbers stay texts: a long one is an error otherwise, and their values do not matter here.
        json.loads(text, object_pairs_hook=_check, parse_int=str, parse_float=str)
    except _Doubled as exc:
        return f"the key {str(exc)!r:.100} is there twice"
    except (ValueError, RecursionError) as exc:
        return f"its keys cannot be checked: {exc}"
    return None


def _check(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Doubled(key)
            seen.add(key)
