"""Settings that decide how the engine starts: those the person gave, never those a repository brought.

Two layers, the first wins: `--settings` (a file or inline JSON), and `settings.json` in
the config folder. Project settings need trust first and are not read here.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from parley.errors import UsageError
from parley.protocol.base import Json


def config_folder(environment: dict[str, str]) -> Path:
    """Where sessions and settings live: one variable relocates everything."""
    if given := environment.get("CLAUDE_CONFIG_DIR"):
        return Path(given)
    return home(environment) / ".claude"


def home(environment: dict[str, str]) -> Path:
    return Path(environment.get("HOME") or "~").expanduser()


def given_settings(text: str | None) -> Json:
    """What `--settings` says. Raises UsageError."""
    if not text:
        return {}
    if text.lstrip().startswith("{"):
        return _object(text.encode(), "--settings")
    try:
        return _object(Path(text).read_bytes(), text)
    except OSError as flaw:
        raise UsageError(f"the settings file {text} cannot be read: {flaw.strerror}") from None


def user_settings(folder: Path) -> Json:
    """What the person's own settings file says. Raises UsageError if it is broken."""
    path = folder / "settings.json"
    try:
        return _object(path.read_bytes(), str(path))
    except OSError:
        return {}


def _object(data: bytes, name: str) -> Json:
    try:
        return msgspec.json.decode(data, type=dict)
    except (msgspec.DecodeError, UnicodeDecodeError) as flaw:
        raise UsageError(f"the settings in {name} are wrong: {flaw}") from None
