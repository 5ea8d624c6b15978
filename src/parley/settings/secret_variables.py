"""The variables that carry a key of ours. Commands, hooks and MCP servers do not get them.

One list for all who need it: the environment of children (env_vars.py), the environment that the kernel shows of
this process (cli/process_secrets.py), and the tests of both. A backend that takes another variable as a key has a
row here.
"""

from __future__ import annotations

from collections.abc import Mapping

KEYS: dict[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS", "CLAUDE_CODE_OAUTH_TOKEN"),
    "openai": ("OPENAI_API_KEY", "OPENAI_CUSTOM_HEADERS"),
    "bedrock": ("AWS_BEARER_TOKEN_BEDROCK", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    "store": ("PARLEY_STORE",),
    "search": ("PARLEY_SEARCH_URL",),
    "spans": ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"),
}
"""By who takes them. Credentials of Vertex are in a file, not in a variable."""
NAMES = frozenset(name for names in KEYS.values() for name in names)
OWNERS = ("ANTHROPIC_", "OPENAI_", "CLAUDE_CODE_OAUTH_", "OTEL_EXPORTER_")
WORDS = ("KEY", "TOKEN", "HEADERS")
"""What the names of keys have in them that later versions of a service may add."""
PASSED = "PARLEY_PASS_VARIABLES"
"""Names, separated by commas, that the person lets commands have all the same: `AWS_SECRET_ACCESS_KEY` for `aws`."""


def is_secret(name: str, value: str) -> bool:
    """Whether a variable carries a key of a backend or of an exporter of spans, or an address with a password in it."""
    name = name.upper()
    if name in NAMES or (name.startswith(OWNERS) and any(word in name for word in WORDS)):
        return True
    return value.startswith(("http://", "https://")) and "@" in value.split("/", 3)[2].partition("?")[0]


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that children may have."""
    passed = {name.strip() for name in environment.get(PASSED, "").split(",")}
    return {name: value for name, value in environment.items() if name in passed or not is_secret(name, value)}
