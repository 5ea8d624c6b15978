"""Where the API key comes from. API keys only: tokens of a subscription login are never used.

The first that is given counts:

    --api-key              on the process list for everybody to see; better use the environment
    ANTHROPIC_API_KEY
    ANTHROPIC_AUTH_TOKEN   sent as a bearer token, for gateways
    apiKeyHelper           a command in the user's or the given settings, never the project's
    ~/.config/claude/config.json   `apiKey` (source document 001)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from parley.errors import ModelError
from parley.protocol.base import Json, Struct

SUBSCRIPTION_TOKEN = "sk-ant-oat"
HELPER_SECONDS = 30
ADVICE = (
    "No API key: set ANTHROPIC_API_KEY (or --api-key), point ANTHROPIC_BASE_URL at a local server, "
    "or use the built-in model with --model offline."
)


class Credential(Struct, frozen=True):
    """A key and where it came from. Its repr never shows the key."""

    header: str
    value: str
    source: str

    def __repr__(self) -> str:
        return f"Credential({self.source})"

    def pair(self) -> tuple[str, str]:
        """Raises ModelError for a key that we must not or cannot use."""
        value = self.value.strip()
        if not value.isascii() or not value.isprintable() or " " in value:
            raise ModelError(f"The key from {self.source} has characters that no key has.", kind="no_key")
        if value.startswith(SUBSCRIPTION_TOKEN):
            raise ModelError(
                f"The key from {self.source} is a token of a subscription login. Parley takes API keys only.",
                kind="no_key",
            )
        return self.header, f"Bearer {value}" if self.header == "authorization" else value


class CredentialSources(Struct, frozen=True, kw_only=True):
    """Where to look."""

    flag: str | None
    environment: Mapping[str, str]
    settings: Json
    home: Path

    def __repr__(self) -> str:
        return f"Places(home={str(self.home)!r})"


def find_credential(places: CredentialSources) -> Credential | None:
    """The key, or None if there is none. Raises ModelError if a helper fails."""
    if places.flag:
        return Credential("x-api-key", places.flag, "--api-key")
    if key := places.environment.get("ANTHROPIC_API_KEY"):
        return Credential("x-api-key", key, "ANTHROPIC_API_KEY")
    if token := places.environment.get("ANTHROPIC_AUTH_TOKEN"):
        return Credential("authorization", token, "ANTHROPIC_AUTH_TOKEN")
    if helper := places.settings.get("apiKeyHelper"):
        return Credential("x-api-key", run_helper(str(helper), places.environment), "apiKeyHelper")
    if key := config_key(places.home / ".config" / "claude" / "config.json"):
        return Credential("x-api-key", key, "config.json")
    return None


def find_source(places: CredentialSources) -> str:
    """What `apiKeySource` says; a helper is not run for it."""
    given = places.flag or any(places.environment.get(name) for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"))
    if not given and places.settings.get("apiKeyHelper"):
        return "apiKeyHelper"
    found = find_credential(places)
    return found.source if found else "none"


def known_secrets(places: CredentialSources) -> list[str]:
    """The keys that can be known without running anything."""
    given = (places.flag, config_key(places.home / ".config" / "claude" / "config.json"))
    return [key for key in given if key]


def run_helper(command: str, environment: Mapping[str, str]) -> str:
    """Raises ModelError. The command's output never shows in the message: it may be half a key."""
    import subprocess

    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HELPER_SECONDS,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as exc:
        raise ModelError(f"apiKeyHelper did not give a key: {type(exc).__name__}", kind="no_key") from None
    key = done.stdout.strip()
    if done.returncode != 0 or not key:
        raise ModelError(f"apiKeyHelper did not give a key: it exited {done.returncode}", kind="no_key")
    return key


def config_key(path: Path) -> str | None:
    try:
        config: Any = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    if not isinstance(config, dict):
        return None
    key = config.get("apiKey") or config.get("api_key")
    return key if isinstance(key, str) else None
