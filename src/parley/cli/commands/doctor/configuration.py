"""Checks of the settings, the keys, the model and its server, and the MCP servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from parley.cli.commands.doctor.base import Check, Level
from parley.compose.launch_context import LaunchContext
from parley.compose.models import ModelFactory
from parley.compose.permissions import is_bare_root
from parley.compose.setup.keys import find_status
from parley.compose.setup.model_server import probe_server
from parley.errors import SessionError, UsageError

KEY_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "OPENAI_API_KEY",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_SECRET_ACCESS_KEY",
)


def check_configuration(launch: LaunchContext) -> Iterator[Check]:
    yield from check_settings(launch)
    given = [name for name in KEY_VARIABLES if launch.environment.get(name)]
    yield Check(
        "keys",
        "ok",
        f"set in the environment: {', '.join(given)}" if given else "no environment variable with an API key is set",
    )
    yield check_model(launch)
    yield check_server(launch)
    yield check_sandbox(launch)
    yield from check_mcp_servers(launch)


def check_settings(launch: LaunchContext) -> Iterator[Check]:
    files = [layer.path for layer in launch.settings.layers()]
    yield Check("settings files", "ok", ", ".join(files) or "none")
    for warning in launch.settings.warnings():
        yield Check("settings", "warning", warning.removeprefix("settings: "))


def check_model(launch: LaunchContext) -> Check:
    try:
        status = find_status(launch)
    except (UsageError, SessionError) as exc:
        return Check("model", "error", str(exc))
    if not status.is_usable:
        return Check("model", "error", f"{status.model} ({status.backend}): {status.problem}")
    return Check("model", "ok", f"{status.model} ({status.backend}), key: {status.source}")


def check_server(launch: LaunchContext) -> Check:
    """Whether the server of the model answers, if the user configured its address."""
    try:
        server = probe_server(ModelFactory(launch))
    except (UsageError, SessionError) as exc:
        return Check("model server", "error", str(exc))
    if not server.address:
        return Check("model server", "ok", f"{server.backend} has no server address to check")
    if not server.variable:
        return Check("model server", "ok", f"{server.address} (not contacted; `parley models --check` sends a request)")
    if server.problem:
        return Check("model server", "error", f"{server.problem} (the address is from {server.variable})")
    return Check("model server", "ok", f"{server.address} ({server.variable}) answers")


def check_sandbox(launch: LaunchContext) -> Check:
    """Which sandbox this machine offers, and why."""
    from parley.compose.workspace.sandbox import describe_missing, offer_for

    merged = launch.settings.merged
    wanted, offer = merged.is_on("sandbox.enabled"), offer_for(merged)
    text = f"{offer.kind}: {offer.reason}" if offer.kind != "none" else f"none: {offer.reason}"
    if offer.kind != "bubblewrap" and (hint := describe_missing()):
        text += f"; {hint}"
    text += "; commands run in it (sandbox.enabled)" if wanted and offer.kind != "none" else ""
    text += "; root cannot bypass permissions, because IS_SANDBOX=1 is not set" if is_bare_root(launch) else ""
    return Check("sandbox", "error" if wanted and offer.kind == "none" else "ok", text)


def check_mcp_servers(launch: LaunchContext) -> Iterator[Check]:
    """Connect to the MCP servers, and load the plugins."""
    from parley.cli.commands.mcp.health import check_servers

    problems: list[str] = []
    launch.warn = problems.append
    try:
        servers, _ = asyncio.run(check_servers(launch))
    except UsageError as exc:
        yield Check("MCP servers", "error", str(exc))
        return
    for problem in problems:
        yield Check("MCP servers", "warning", problem.removeprefix("settings: "))
    if not servers and not problems:
        yield Check("MCP servers", "ok", "none configured")
    for server in servers:
        level: Level = "ok" if server.status == "connected" else "warning"
        reason = f" — {server.reason}" if server.reason else ""
        yield Check(f"MCP server {server.spec.name}", level, f"{server.describe_status(launch.cwd)}{reason}")
