"""`parley auth`: which key a session here would use. The key itself is never shown.

The keys of `auth status` are those of Claude Code, because clients read them.
"""

from __future__ import annotations

from parley.cli.commands.launch import open_launch
from parley.cli.commands.subcommand import (
    SWITCH,
    check_count,
    parse_words,
    unknown_command,
    wants_help,
    write_json,
    write_lines,
)
from parley.compose.launch_context import LaunchContext
from parley.compose.setup.keys import KeyStatus, find_status
from parley.errors import UnknownCommand
from parley.protocol.base import Json

USAGE = """\
usage: parley auth status [--json | --text]

Show whether a session in this directory has a key for its model, and where the key comes from. The exit code
is 1 if it has none. Parley uses API keys only, so there is nothing to log in to: set ANTHROPIC_API_KEY, or
OPENAI_API_KEY for openai:NAME (docs/models.md)."""
KEYS_ONLY = "Parley uses API keys only, and keeps no login; set ANTHROPIC_API_KEY"
METHODS = {"apiKeyHelper": "api_key_helper", "ANTHROPIC_AUTH_TOKEN": "oauth_token"}
"""How Claude Code calls the sources of keys that are not plain API keys."""
PROVIDERS = {"anthropic": "firstParty"}


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    if wants_help(argv):
        return write_lines([USAGE])
    name, *rest = argv
    if name in ("login", "logout"):
        raise UnknownCommand(f"`parley auth {name}` is not available: {KEYS_ONLY}")
    if name != "status":
        raise unknown_command("auth", name, ["status"])
    given = parse_words(rest, {"--json": SWITCH, "--text": SWITCH})
    check_count(given.words, 0, 0, USAGE)
    launch = open_launch()
    status = find_status(launch)
    code = 0 if status.is_usable else 1
    if given.has("--text"):
        return write_lines(format_status(status), code)
    return write_json(build_json(launch, status), code)


def build_json(launch: LaunchContext, status: KeyStatus) -> Json:
    has_key = status.is_usable and status.source not in ("none", "none needed", "its own")
    method = METHODS.get(status.source, "api_key") if has_key else "third_party" if status.is_cloud else "none"
    return {
        "loggedIn": status.is_usable,
        "authMethod": method,
        "apiProvider": PROVIDERS.get(status.backend, status.backend),
        "analyticsDisabled": True,
        "projectsDirectory": str(launch.config / "projects"),
        "configDirectory": str(launch.config),
        "loginExpiresAt": None,
        **({"apiKeySource": status.source} if has_key else {}),
        "model": status.model,
        **({"error": status.problem} if status.problem else {}),
    }


def format_status(status: KeyStatus) -> list[str]:
    lines = [f"model: {status.model} ({status.backend})", f"key: {status.source}"]
    return [*lines, status.problem] if status.problem else lines
