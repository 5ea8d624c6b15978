"""The address and the API key of each model backend. Only API keys are used, never tokens of a subscription login.

The first of these that is set is used:

    --api-key              visible in the process list; prefer the environment
    ANTHROPIC_API_KEY
    ANTHROPIC_AUTH_TOKEN   sent as a bearer token, for gateways
    apiKeyHelper           a command in the user's settings or in --settings, never in the project's
    ~/.config/claude/config.json   `apiKey` (dialect spec001)

Which variables they are in is in the backend's row of `models/catalog.py`. A key is sent only to the server it belongs
to. A server on this machine needs no key. An invalid URL is reported at the start (`UsageError`), a missing key by the
first model call (`ModelError`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from parley.errors import ModelError, UsageError
from parley.models.catalog import BACKENDS, Server, get_backend
from parley.models.endpoint import ModelEndpoint, check_url, is_loopback
from parley.protocol.base import Json, Struct
from parley.settings.env_vars import custom_headers, extra_body, is_truthy
from parley.version import how_to_install
from parley.workspace.search_path import environment_for

CLOUDS = tuple(name for name, row in BACKENDS.items() if row.client_options)


def find_url(server: Server, environment: Mapping[str, str]) -> str:
    """Raises UsageError."""
    variable = f"{server.variables}_BASE_URL"
    return check_url(environment.get(variable) or server.url, variable)


def find_endpoint(adapter: str, sources: CredentialSources) -> ModelEndpoint:
    """The server of a backend and its key. Raises UsageError, or ModelError if a key is required and missing."""
    row, environment = get_backend(adapter), sources.environment
    server = row.server
    if server is None:
        raise UsageError(f"the model backend {adapter!r} has no server")
    base_url, name = find_url(server, environment), server.variables
    headers = custom_headers(environment.get(f"{name}_CUSTOM_HEADERS", ""))
    key = environment.get(f"{name}_API_KEY")
    if row.is_messages_api:
        found, missing = find_credential(sources), ADVICE
    else:
        found = ApiCredential("authorization", key, f"{name}_API_KEY") if key else None
        missing = "" if headers else f"No API key: set {name}_API_KEY, or point {name}_BASE_URL at a local server."
    if found is None and missing and not is_loopback(base_url):
        raise ModelError(missing, kind="no_key")
    return ModelEndpoint(
        base_url=base_url,
        auth=found.pair() if found else None,
        headers=headers,
        extra_body=extra_body(environment.get("CLAUDE_CODE_EXTRA_BODY")),
        declared=declared_fields(server, environment),
        variables=name,
        key_source=found.source if found else f"{name}_CUSTOM_HEADERS" if headers else "",
    )


def find_key_source(adapter: str, sources: CredentialSources) -> str:
    """Where the key comes from, never the key itself; `none` if there is none."""
    row = get_backend(adapter)
    if row.is_messages_api:
        return find_source(sources)
    names = () if row.server is None else (f"{row.server.variables}_{what}" for what in ("API_KEY", "CUSTOM_HEADERS"))
    return next((name for name in names if sources.environment.get(name)), "none")


def declared_fields(server: Server, environment: Mapping[str, str]) -> frozenset[str]:
    """The optional fields that the server supports."""
    given = environment.get(server.fields_variable)
    if given is not None:
        return frozenset(name.strip() for name in given.split(",") if name.strip())
    is_own = find_url(server, environment).startswith(server.url.removesuffix("/v1"))
    return server.own_fields if is_own else frozenset()


def find_address(adapter: str, environment: Mapping[str, str]) -> tuple[str, str, str]:
    """The variable that sets the address of a backend, the address, and the provider's own."""
    row = get_backend(adapter)
    if row.server is not None:
        variable, standard = f"{row.server.variables}_BASE_URL", row.server.url
    else:
        variable, standard = next(iter(row.client_options.get("base_url", ())), ""), ""
    return variable, environment.get(variable, ""), standard


def check_backend(adapter: str, environment: Mapping[str, str]) -> None:
    """Raises UsageError if a backend can never be reached: its address is wrong, or a package is missing."""
    row = get_backend(adapter)
    if row.server is not None:
        find_url(row.server, environment)
    elif row.client_options:
        from importlib.util import find_spec

        if find_spec("anthropic") is None:
            variable = f"CLAUDE_CODE_USE_{adapter.upper()}"
            raise UsageError(f"{variable} requires an extra that is not installed: {how_to_install(adapter)}")


def selected_cloud(environment: Mapping[str, str]) -> str | None:
    """The cloud that serves the Messages API, if one is selected."""
    return next((name for name in CLOUDS if is_truthy(environment.get(f"CLAUDE_CODE_USE_{name.upper()}"))), None)


def cloud_options(
    name: str, environment: Mapping[str, str], settings: Json | None = None, folders: Iterable[str] = ()
) -> dict[str, str]:
    """The options of the cloud's client that are set. Raises ModelError if a helper fails."""
    row = BACKENDS[name]
    helper = (settings or {}).get(row.credential_helper)
    if helper:
        environment = {**environment, **export_aws(helper, environment, folders)}
    found = {
        option: next((environment[variable] for variable in variables if environment.get(variable)), None)
        for option, variables in row.client_options.items()
    }
    if found.get("api_key"):
        # A token replaces the signature; the client accepts only one of the two.
        found |= dict.fromkeys(("aws_access_key", "aws_secret_key", "aws_session_token", "aws_profile"))
    return {option: value for option, value in found.items() if value is not None}


SUBSCRIPTION_TOKEN = "sk-ant-oat"
HELPER_SECONDS = 30
ADVICE = (
    "No API key: set ANTHROPIC_API_KEY (or --api-key), point ANTHROPIC_BASE_URL at a local server, "
    "or use the built-in model with --model offline."
)


class ApiCredential(Struct, frozen=True):
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


def find_credential(sources: CredentialSources) -> ApiCredential | None:
    """Return the key, or None if none is set. Raises ModelError if a helper fails."""
    if sources.flag:
        return ApiCredential("x-api-key", sources.flag, "--api-key")
    if key := sources.environment.get("ANTHROPIC_API_KEY"):
        return ApiCredential("x-api-key", key, "ANTHROPIC_API_KEY")
    if token := sources.environment.get("ANTHROPIC_AUTH_TOKEN"):
        return ApiCredential("authorization", token, "ANTHROPIC_AUTH_TOKEN")
    if helper := sources.settings.get("apiKeyHelper"):
        return ApiCredential("x-api-key", run_helper(str(helper), sources.environment, sources.folders), "apiKeyHelper")
    if key := config_key(sources.home / ".config" / "claude" / "config.json"):
        return ApiCredential("x-api-key", key, "config.json")
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
