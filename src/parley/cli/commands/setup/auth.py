"""`parley auth`: which key a session here would use. The key itself is never shown.

The keys of `auth status` are those of Claude Code, because clients read them.
"""

from __future__ import annotations

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.launch import open_launch
from parley.cli.commands.subcommand import GivenArgs, run_command, write_json, write_lines
from parley.compose.launch_context import LaunchContext
from parley.compose.setup.keys import KeyStatus, find_status
from parley.protocol.base import Json

METHODS = {"apiKeyHelper": "api_key_helper", "ANTHROPIC_AUTH_TOKEN": "oauth_token"}
"""How Claude Code calls the sources of keys that are not plain API keys."""
PROVIDERS = {"anthropic": "firstParty"}


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    return run_command(COMMANDS["auth"], argv, {"status": show_status})


def show_status(given: GivenArgs) -> int:
    launch = open_launch()
    status = find_status(launch)
    code = 0 if status.is_usable else 1
    if given.has("text"):
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
