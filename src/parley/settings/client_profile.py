"""Which messages the client supports, by the name and version it sets in the environment."""

from __future__ import annotations

from collections.abc import Mapping

FIRST_TOLERANT_PYTHON = (0, 1, 50)
"""The first release of the official Python SDK known to accept unknown message types; 0.1.20 fails on them."""
STRICT = ("sdk-go", "sdk-go-client")
"""Clients that end the session after a message of an unknown type."""


def takes_rate_limits(environment: Mapping[str, str]) -> bool:
    """Whether the client accepts `rate_limit_event` messages."""
    entrypoint = environment.get("CLAUDE_CODE_ENTRYPOINT")
    if entrypoint == "sdk-py":
        return version(environment.get("CLAUDE_AGENT_SDK_VERSION", "")) >= FIRST_TOLERANT_PYTHON
    return entrypoint not in STRICT


def version(text: str) -> tuple[int, ...]:
    """Parse a release number; (0,) if it is invalid."""
    parts = text.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else (0,)
