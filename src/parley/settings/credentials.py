"""Find the API key. Only API keys are used, never tokens of a subscription login.

The first of these that is set is used:

    --api-key              visible in the process list; prefer the environment
    ANTHROPIC_API_KEY
    ANTHROPIC_AUTH_TOKEN   sent as a bearer token, for gateways
    apiKeyHelper           a command in the user's settings or in --settings, never in the project's
    ~/.config/claude/config.json   `apiKey` (dialect spec001)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from parley.errors import ModelError
from parley.protocol.base import Json, Struct
from parley.workspace.search_path import environment_for

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
        """Return the header's name and value. Raises ModelError for an invalid key or a subscription token."""
        value = self.value.strip()
        if not value.isascii() or not value.isprintable() or " " in value:
            raise ModelError(
                f"The key from {self.source} contains spaces, control or non-ASCII characters. API "
                "keys contain none of these.",
                kind="no_key",
            )
        if value.startswith(SUBSCRIPTION_TOKEN):
            raise ModelError(
                f"The key from {self.source} is a token of a subscription login. Parley accepts only API keys.",
                kind="no_key",
            )
        return self.header, f"Bearer {value}" if self.header == "authorization" else value


class CredentialSources(Struct, frozen=True, kw_only=True):
    """Where to look for a key. The repr never shows one."""

    flag: str | None
    environment: Mapping[str, str]
    settings: Json
    home: Path
    folders: tuple[str, ...] = ()
    """The working directories: a helper runs none of their programs unless it names their path."""

    def __repr__(self) -> str:
        return f"CredentialSources(home={str(self.home)!r})"


def find_credential(sources: CredentialSources) -> Credential | None:
    """Return the key, or None if none is set. Raises ModelError if a helper fails."""
    if sources.flag:
        return Credential("x-api-key", sources.flag, "--api-key")
    if key := sources.environment.get("ANTHROPIC_API_KEY"):
        return Credential("x-api-key", key, "ANTHROPIC_API_KEY")
    if token := sources.environment.get("ANTHROPIC_AUTH_TOKEN"):
        return Credential("authorization", token, "ANTHROPIC_AUTH_TOKEN")
    if helper := sources.settings.get("apiKeyHelper"):
        return Credential("x-api-key", run_helper(str(helper), sources.environment, sources.folders), "apiKeyHelper")
    if key := config_key(sources.home / ".config" / "claude" / "config.json"):
        return Credential("x-api-key", key, "config.json")
    return None


def find_source(sources: CredentialSources) -> str:
    """Return the value of `apiKeySource`, without running a helper."""
    environment = sources.environment
    given = sources.flag or environment.get("ANTHROPIC_API_KEY") or environment.get("ANTHROPIC_AUTH_TOKEN")
    if not given and sources.settings.get("apiKeyHelper"):
        return "apiKeyHelper"
    found = find_credential(sources)
    return found.source if found else "none"


def known_secrets(sources: CredentialSources) -> list[str]:
    """Return the keys that are known without running a helper."""
    given = (sources.flag, config_key(sources.home / ".config" / "claude" / "config.json"))
    return [key for key in given if key]


def export_aws(command: str, environment: Mapping[str, str], folders: Iterable[str]) -> dict[str, str]:
    """Run `awsCredentialExport`; returns the variables with the credentials. Raises ModelError."""
    text = run_helper(command, environment, folders, key="awsCredentialExport")
    try:
        found = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        found = {}
    inner = found.get("Credentials")
    values: Json = inner if isinstance(inner, dict) else found
    names = {
        "AWS_ACCESS_KEY_ID": "AccessKeyId",
        "AWS_SECRET_ACCESS_KEY": "SecretAccessKey",
        "AWS_SESSION_TOKEN": "SessionToken",
    }
    exported = {name: values[key] for name, key in names.items() if isinstance(values.get(key), str)}
    if len(exported) < 2:
        raise ModelError(
            "awsCredentialExport must print JSON with Credentials: AccessKeyId, SecretAccessKey, SessionToken",
            kind="no_key",
        )
    return exported


def run_helper(
    command: str, environment: Mapping[str, str], folders: Iterable[str], *, key: str = "apiKeyHelper"
) -> str:
    """Run a helper; returns its output. Raises ModelError, without the output, which may contain a part of a key."""
    import subprocess

    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            env=environment_for(command, environment, [os.getcwd(), *folders]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HELPER_SECONDS,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as exc:
        raise ModelError(f"{key} failed to print a key: {type(exc).__name__}", kind="no_key") from None
    printed = done.stdout.strip()
    if done.returncode != 0 or not printed:
        raise ModelError(f"{key} failed to print a key: exit code {done.returncode}", kind="no_key")
    return printed


def config_key(path: Path) -> str | None:
    try:
        config: Any = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    if not isinstance(config, dict):
        return None
    key = config.get("apiKey") or config.get("api_key")
    return key if isinstance(key, str) else None
