"""How long hooks may run. `engine/hooks/dispatcher.py` stops a hook that takes longer."""

from __future__ import annotations

DEFAULT_SECONDS = 60.0
PROMPT_SECONDS = 30.0
"""The default of hooks that ask a model."""
MAX_SECONDS = 365 * 24 * 3600.0


def parse_timeout(value: object) -> float:
    """The timeout in seconds; the default if `value` is not a positive number."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        return DEFAULT_SECONDS
    return float(min(value, MAX_SECONDS))
