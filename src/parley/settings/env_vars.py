"""What the environment says: the variables the engine reads, and those its children must not see."""

from __future__ import annotations

from typing import Any

import msgspec

from parley.errors import ModelError, UsageError
from parley.protocol.base import Json
from parley.protocol.options import SYNC_POLICIES
from parley.settings.secret_variables import without_secrets
from parley.workspace.search_path import with_absolute_path


def child_environment(environment: dict[str, str]) -> dict[str, str]:
    """What commands see: everything but our keys, no address with a password in it, and a PATH of absolute folders."""
    harmless = without_secrets(environment)
    kept = with_absolute_path(harmless) if "PATH" in harmless else harmless
    return {**kept, "CLAUDECODE": "1"}


def state_events(environment: dict[str, str]) -> str | None:
    """Who reads session_state_changed lines."""
    if truthy(environment.get("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS")):
        return "everybody"
    return "sdk" if truthy(environment.get("CLAUDE_CODE_SDK_READS_SESSION_STATE")) else None


def truthy(value: str | None) -> bool:
    return (value or "").lower() in ("1", "true", "yes", "on")


def whole(environment: dict[str, str], name: str) -> int | None:
    """A variable that holds a whole number. Raises UsageError."""
    value = environment.get(name)
    if not value:
        return None
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"{name} must be a whole number, not {value!r}") from None


def sync_policy(flag: str | None, environment: dict[str, str], setting: Any) -> str:
    """When a session's log is forced to the device: the first of these that says so. Raises UsageError."""
    wanted = flag or environment.get("PARLEY_FSYNC") or setting or "turn"
    if wanted not in SYNC_POLICIES:
        raise UsageError(f"PARLEY_FSYNC must be always, turn or off, not {wanted!r}")
    return str(wanted)


def whole_or(environment: dict[str, str], name: str, default: int) -> int:
    value = whole(environment, name)
    return default if value is None else value


def background_wait_seconds(environment: dict[str, str]) -> float | None:
    """How long background tasks are waited for once the input has ended; 0 in the variable means for ever."""
    milliseconds = whole_or(environment, "CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS", 600_000)
    return milliseconds / 1000 if milliseconds > 0 else None


def heartbeat_seconds(environment: dict[str, str]) -> float | None:
    """How often a silent turn gives a sign of life; 0 in the variable means never."""
    milliseconds = whole_or(environment, "PARLEY_HEARTBEAT_MS", 30_000)
    return milliseconds / 1000 if milliseconds > 0 else None


def custom_headers(text: str) -> dict[str, str]:
    """`Name: value` lines."""
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def extra_body(text: str | None) -> Json:
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=dict)
    except msgspec.DecodeError as flaw:
        raise ModelError(f"CLAUDE_CODE_EXTRA_BODY is not a JSON object: {flaw}", kind="no_key") from None
