"""Read environment variables of the engine, and build the environment of its child processes."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from parley.errors import ModelError, UsageError
from parley.protocol.base import Json
from parley.settings.secret_variables import without_secrets
from parley.workspace.search_path import with_absolute_path

FIRST_TOLERANT_PYTHON = (0, 1, 50)
"""The first release of the official Python SDK known to accept unknown message types; 0.1.20 fails on them."""
STRICT = ("sdk-go", "sdk-go-client")
"""Clients that end the session after a message of an unknown type."""


def child_environment(environment: dict[str, str]) -> dict[str, str]:
    """Return the environment of commands: without secrets, and with only absolute folders in PATH."""
    cleaned = without_secrets(environment)
    cleaned = with_absolute_path(cleaned) if "PATH" in cleaned else cleaned
    return {**cleaned, "CLAUDECODE": "1"}


def state_events(environment: dict[str, str]) -> str | None:
    """Return which clients receive `session_state_changed`: `all`, `sdk` or None."""
    if is_truthy(environment.get("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS")):
        return "all"
    return "sdk" if is_truthy(environment.get("CLAUDE_CODE_SDK_READS_SESSION_STATE")) else None


def is_truthy(value: str | None) -> bool:
    return (value or "").lower() in ("1", "true", "yes", "on")


def read_int(environment: dict[str, str], name: str) -> int | None:
    """Read a variable that is a whole number. Raises UsageError."""
    value = environment.get(name)
    if not value:
        return None
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"{name} must be a whole number, not {value!r}") from None


def read_int_or(environment: dict[str, str], name: str, default: int) -> int:
    value = read_int(environment, name)
    return default if value is None else value


def background_wait_seconds(environment: dict[str, str]) -> float | None:
    """How long to wait for background tasks after the input has ended; 0 in the variable means no limit."""
    milliseconds = read_int_or(environment, "CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS", 600_000)
    return milliseconds / 1000 if milliseconds > 0 else None


def heartbeat_seconds(environment: dict[str, str]) -> float | None:
    """How often an idle turn sends a heartbeat; 0 in the variable means never."""
    milliseconds = read_int_or(environment, "PARLEY_HEARTBEAT_MS", 30_000)
    return milliseconds / 1000 if milliseconds > 0 else None


def custom_headers(text: str) -> dict[str, str]:
    """Parse `Name: value` lines."""
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def extra_body(text: str | None) -> Json:
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=dict)
    except msgspec.DecodeError as exc:
        raise ModelError(f"CLAUDE_CODE_EXTRA_BODY is not a JSON object: {exc}", kind="no_key") from None


def takes_rate_limits(environment: Mapping[str, str]) -> bool:
    """Whether the client accepts `rate_limit_event` messages."""
    entrypoint = environment.get("CLAUDE_CODE_ENTRYPOINT")
    if entrypoint == "sdk-py":
        return parse_version(environment.get("CLAUDE_AGENT_SDK_VERSION", "")) >= FIRST_TOLERANT_PYTHON
    return entrypoint not in STRICT


def parse_version(text: str) -> tuple[int, ...]:
    """Parse a release number; (0,) if it is invalid."""
    parts = text.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else (0,)
