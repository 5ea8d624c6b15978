"""Environment variables that contain a secret. Commands, hooks and MCP servers do not receive them.

The list is used for the environment of child processes (env_vars.py) and to erase secrets from /proc
(cli/process_secrets.py). A backend that reads a key from another variable adds it here.
"""

from __future__ import annotations

from collections.abc import Mapping

KEYS: dict[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS", "CLAUDE_CODE_OAUTH_TOKEN"),
    "openai": ("OPENAI_API_KEY", "OPENAI_CUSTOM_HEADERS"),
    "bedrock": ("AWS_BEARER_TOKEN_BEDROCK", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    "store": ("PARLEY_STORE",),
    "gateway": ("PARLEY_TOKEN",),
    "cluster": ("PARLEY_NATS", "PARLEY_NATS_CREDENTIALS", "PARLEY_CLUSTER_SECRET"),
    "sdk-url": ("CLAUDE_CODE_SESSION_ACCESS_TOKEN",),
    "workspace": ("PARLEY_WORKSPACE_TOKEN",),
    "search": ("PARLEY_SEARCH_URL",),
    "spans": ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"),
}
"""By the component that reads them. Vertex credentials are in a file, not in a variable."""
NAMES = frozenset(name for names in KEYS.values() for name in names)
OWNERS = ("ANTHROPIC_", "OPENAI_", "CLAUDE_CODE_OAUTH_", "OTEL_EXPORTER_")
WORDS = ("KEY", "TOKEN", "HEADERS")
"""Parts of variable names that mark a secret, for variables that later versions of a service may add."""
PASSED = "PARLEY_PASS_VARIABLES"
"""A comma-separated list of secrets that commands receive anyway, e.g. `AWS_SECRET_ACCESS_KEY` for `aws`."""

COMMANDS = "PARLEY_COMMAND_ENV"
"""A comma-separated list of the variables that commands receive besides `PLAIN`; without it, or with `*`, they receive
all but secrets."""
PLAIN = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM", "PWD"})
PLAIN_PREFIXES = ("LC_", "BASH_", "CLAUDE_", "PARLEY_")
"""The locale, and what tools read themselves."""


def is_secret(name: str, value: str) -> bool:
    """Whether a variable contains a key of a backend or of a trace exporter, or a URL with a password."""
    name = name.upper()
    if name in NAMES or (name.startswith(OWNERS) and any(word in name for word in WORDS)):
        return True
    return value.startswith(("http://", "https://")) and "@" in value.split("/", 3)[2].partition("?")[0]


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that child processes may receive."""
    passed = {name.strip() for name in environment.get(PASSED, "").split(",")}
    return {name: value for name, value in environment.items() if name in passed or not is_secret(name, value)}


def keep_named(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables that commands receive, if `PARLEY_COMMAND_ENV` names them."""
    named = environment.get(COMMANDS, "*")
    if named == "*":
        return environment
    kept = PLAIN.union(part.strip() for text in (named, environment.get(PASSED, "")) for part in text.split(","))
    return {name: value for name, value in environment.items() if name in kept or name.startswith(PLAIN_PREFIXES)}
