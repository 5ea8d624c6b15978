"""What the client that started us can bear, by what it says of itself in the environment."""

from __future__ import annotations

from collections.abc import Mapping

FIRST_PATIENT_PYTHON = (0, 1, 50)
"""The first release of the official Python client that is known to take lines of any kind; 0.1.20 dies of them."""
STRICT = ("sdk-go", "sdk-go-client")
"""Clients that take a line of a kind they do not know for the end."""


def takes_rate_limits(environment: Mapping[str, str]) -> bool:
    """Whether a `rate_limit_event` line does no harm."""
    entrypoint = environment.get("CLAUDE_CODE_ENTRYPOINT")
    if entrypoint == "sdk-py":
        return version(environment.get("CLAUDE_AGENT_SDK_VERSION", "")) >= FIRST_PATIENT_PYTHON
    return entrypoint not in STRICT


def version(text: str) -> tuple[int, ...]:
    """A release number; (0,) for what is none."""
    parts = text.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else (0,)
