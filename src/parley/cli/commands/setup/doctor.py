"""`parley doctor`: check the installation, the settings, the model and the MCP servers of this directory.

A check is ok, a warning, or an error that keeps a session from working. Keys are named, never shown.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Literal

from parley.cli.commands.launch import open_launch
from parley.cli.commands.setup.update import find_installation
from parley.cli.commands.subcommand import SWITCH, check_count, parse_words, write_json, write_lines
from parley.compose.launch_context import LaunchContext
from parley.compose.setup.keys import find_status
from parley.errors import SessionError, UsageError
from parley.protocol.base import Struct
from parley.settings.base import printable
from parley.version import PROTOCOL_LEVEL, __version__

USAGE = """\
usage: parley doctor [--json]

Check the installation, the settings, the model, the MCP servers and the plugins of this directory. Servers are
connected to; no request is sent to a model (`parley models --check` does that). The exit code is 1 if something
keeps a session from working."""
Level = Literal["ok", "warning", "error"]
MARKS: dict[Level, str] = {"ok": "✔", "warning": "!", "error": "✘"}
EXTRAS = {"mcp": "MCP servers with a URL", "opentelemetry": "traces", "psycopg": "sessions in PostgreSQL"}
VERSION_SECONDS = 10


class Check(Struct, frozen=True, kw_only=True):
    """One finding."""

    name: str
    level: Level
    detail: str


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    if "--help" in argv or "-h" in argv:
        return write_lines([USAGE])
    given = parse_words(argv, {"--json": SWITCH})
    check_count(given.words, 0, 0, USAGE)
    checks = list(run_checks())
    is_ok = all(check.level != "error" for check in checks)
    if given.has("--json"):
        rows = [{"name": check.name, "level": check.level, "detail": check.detail} for check in checks]
        return write_json({"ok": is_ok, "checks": rows}, 0 if is_ok else 1)
    return write_lines(format_checks(checks), 0 if is_ok else 1)


def format_checks(checks: list[Check]) -> Iterator[str]:
    yield f"Parley {__version__} doctor"
    for check in checks:
        yield f"{MARKS[check.level]} {check.name}: {printable(check.detail, 2_000)}"
    count = {level: sum(check.level == level for check in checks) for level in MARKS}
    yield f"{count['error']} errors, {count['warning']} warnings"


def run_checks() -> Iterator[Check]:
    yield from check_installation()
    yield check_program("git", "the model cannot use git, and agents have no worktrees")
    yield check_program("rg", "a slower search in Python is used", is_needed=False)
    try:
        launch = open_launch()
    except (UsageError, SessionError) as exc:
        yield Check(name="settings", level="error", detail=str(exc))
        return
    launch.warn = lambda text: None  # each check reports what it finds
    yield from check_config_folder(launch)
    yield from check_settings(launch)
    yield check_model(launch)
    yield from check_servers(launch)


def check_installation() -> Iterator[Check]:
    found = find_installation()
    yield Check(name="version", level="ok", detail=f"Parley {__version__}, protocol of Claude Code {PROTOCOL_LEVEL}")
    yield Check(name="installation", level="ok", detail=f"{found.method} in {found.location}")
    yield Check(
        name="python", level="ok", detail=f"{platform.python_version()} ({sys.executable}, {platform.platform()})"
    )
    path = shutil.which("parley")
    if path is None:
        yield Check(name="PATH", level="warning", detail="`parley` is not on the PATH")
    else:
        yield Check(name="PATH", level="ok", detail=f"`parley` is {path}")
    missing = [f"{name} ({use})" for name, use in EXTRAS.items() if find_spec(name) is None]
    yield Check(
        name="extras", level="ok", detail=f"not installed: {', '.join(missing)}" if missing else "all are installed"
    )


def check_program(name: str, loss: str, *, is_needed: bool = True) -> Check:
    path = shutil.which(name) or shutil.which(name, path=os.path.dirname(sys.executable))
    if path is None:
        return Check(name=name, level="warning" if is_needed else "ok", detail=f"not found: {loss}")
    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_SECONDS,
            check=False,
        )
        version = done.stdout.partition("\n")[0].strip()
    except (OSError, subprocess.TimeoutExpired) as exc:
        return Check(name=name, level="warning", detail=f"{path} does not run: {type(exc).__name__}")
    return Check(name=name, level="ok", detail=f"{version or 'unknown version'} ({path})")


def check_config_folder(launch: LaunchContext) -> Iterator[Check]:
    folder = launch.config
    if not folder.exists():
        yield Check(name="config directory", level="ok", detail=f"{folder} (is made when it is needed)")
    elif not folder.is_dir() or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield Check(name="config directory", level="error", detail=f"{folder} is not a directory you can write to")
    else:
        yield Check(name="config directory", level="ok", detail=str(folder))


def check_settings(launch: LaunchContext) -> Iterator[Check]:
    files = [layer.path for layer in launch.settings.layers()]
    yield Check(name="settings files", level="ok", detail=", ".join(files) or "none")
    for warning in launch.settings.warnings():
        yield Check(name="settings", level="warning", detail=warning.removeprefix("settings: "))


def check_model(launch: LaunchContext) -> Check:
    try:
        status = find_status(launch)
    except (UsageError, SessionError) as exc:
        return Check(name="model", level="error", detail=str(exc))
    if not status.is_usable:
        return Check(name="model", level="error", detail=f"{status.model} ({status.backend}): {status.problem}")
    return Check(name="model", level="ok", detail=f"{status.model} ({status.backend}), key: {status.source}")


def check_servers(launch: LaunchContext) -> Iterator[Check]:
    """Connect to the MCP servers, and load the plugins."""
    from parley.cli.commands.mcp.health import check_servers as connect

    problems: list[str] = []
    launch.warn = problems.append
    try:
        servers, _ = asyncio.run(connect(launch))
    except UsageError as exc:
        yield Check(name="MCP servers", level="error", detail=str(exc))
        return
    for problem in problems:
        yield Check(name="MCP servers", level="warning", detail=problem.removeprefix("settings: "))
    for server in servers:
        level: Level = "ok" if server.status == "connected" else "warning"
        reason = f" — {server.reason}" if server.reason else ""
        yield Check(
            name=f"MCP server {server.spec.name}",
            level=level,
            detail=f"{server.describe_status(launch.cwd)}{reason}",
        )
