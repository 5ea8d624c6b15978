"""Checks of the settings, the keys, the model and its server, and the MCP servers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

from parley.cli.commands.doctor.base import Check, Level
from parley.compose.launch_context import LaunchContext
from parley.compose.models import ModelFactory
from parley.compose.setup.keys import find_status
from parley.errors import SessionError, UsageError
from parley.models.endpoint import is_loopback, without_userinfo
from parley.settings import backends
from parley.settings.env_vars import is_truthy

KEY_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "OPENAI_API_KEY",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_SECRET_ACCESS_KEY",
)
SERVER_SECONDS = 5
"""How long a model server may take to answer."""


def check_configuration(launch: LaunchContext) -> Iterator[Check]:
    yield from check_settings(launch)
    given = [name for name in KEY_VARIABLES if launch.environment.get(name)]
    yield Check("keys", "ok", f"set: {', '.join(given)}" if given else "no variable with a key is set")
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
    """Whether the server of the model answers, if the user configured its address. No key is sent."""
    models = ModelFactory(launch)
    try:
        backend = models.find_adapter(models.resolve(models.name()))
        service = backends.SERVICES.get(backend)
        if service is None:
            return Check("model server", "ok", f"{backend} has no address of its own")
        url = service.url(launch.environment)
    except (UsageError, SessionError) as exc:
        return Check("model server", "error", str(exc))
    shown = without_userinfo(url)
    variable, address, standard = backends.find_address(backend, launch.environment)
    if not address or address.rstrip("/") == standard.rstrip("/"):
        return Check("model server", "ok", f"{shown} (not contacted; `parley models --check` sends a request)")
    problem = contact(url, models)
    if problem is None:
        return Check("model server", "ok", f"{shown} ({variable}) answers")
    return Check("model server", "error", f"{shown} ({variable}) does not answer: {problem}")


def contact(url: str, models: ModelFactory) -> str | None:
    """Send a request that costs nothing; returns what went wrong. Any response is an answer."""
    import httpx2

    try:
        verify = False if url.startswith("http:") else models.trust()()
        with httpx2.Client(verify=verify, timeout=SERVER_SECONDS, trust_env=not is_loopback(url)) as client:
            client.head(without_userinfo(url))
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError, ImportError) as exc:
        # Only the kind of other errors: their text may contain the URL of a proxy with a password.
        return str(exc) if isinstance(exc, httpx2.ConnectError) else type(exc).__name__
    return None


def check_sandbox(launch: LaunchContext) -> Check:
    is_set = is_truthy(os.environ.get("IS_SANDBOX"))
    inside = "IS_SANDBOX is set: root may bypass permissions" if is_set else "IS_SANDBOX is not set"
    text = f"Parley has none of its own; run it in a container to confine commands ({inside})"
    wanted = launch.settings.merged.is_on("sandbox.enabled")
    return Check("sandbox", "warning" if wanted else "ok", text)


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
