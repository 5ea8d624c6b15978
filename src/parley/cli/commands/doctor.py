"""`parley doctor`: checks of the installation, the configuration and the session store."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from parley.cli.commands.mcp import check_servers
from parley.cli.commands.resident import describe, list_servers, read_idle_seconds
from parley.cli.commands.setup import find_installation
from parley.cli.commands.subcommand import GivenArgs, choose_style, open_launch, write_result
from parley.cli.main import RESIDENT
from parley.compose.hooks import find_hook_problems
from parley.compose.launch_context import LaunchContext
from parley.compose.models import ModelFactory
from parley.compose.permissions import is_bare_root
from parley.compose.sandbox import describe_missing, offer_for
from parley.compose.setup.model_server import find_status, probe_server
from parley.compose.stores import SessionStores
from parley.errors import SessionError, UsageError
from parley.protocol.base import Struct
from parley.settings.base import printable
from parley.stores.base import Store
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.text import format_quantity, format_size
from parley.version import PROTOCOL_LEVEL, __version__, how_to_install
from parley.workspace.search_path import find_trusted

MARKS: dict[Level, str] = {"ok": "✔", "warning": "!", "error": "✘"}
Level = Literal["ok", "warning", "error"]
EXTRAS = {
    "mcp": ("MCP servers with a URL", ("mcp",)),
    "tui": ("Markdown and colours at a terminal", ("rich", "markdown_it")),
    "server": ("parley serve, console, host and acp", ("parley.gateway", "nats", "starlette", "uvicorn", "uvloop")),
    "kit": ("parley conform, tap and eval", ("parley.conformance",)),
    "remote": ("sessions on a gateway, --sdk-url", ("websockets",)),
    "pdf": ("text of PDF files", ("pypdf",)),
    "otel": ("OpenTelemetry traces", ("opentelemetry.sdk",)),
    "postgres": ("sessions in PostgreSQL", ("psycopg",)),
    "bedrock": ("Claude on Amazon Bedrock", ("anthropic", "botocore")),
    "vertex": ("Claude on Google Vertex AI", ("anthropic", "google.auth")),
}
"""The extras for users: what each is for, and the modules that it installs."""
VERSION_SECONDS = 10
BUNDLED = "SDKs whose package contains a copy of Claude Code ignore the PATH: pass them the path of Parley"
KEY_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "OPENAI_API_KEY",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_SECRET_ACCESS_KEY",
)
READ_SESSIONS = 20
"""How many sessions are read to the end; the latest of this directory."""
LOW_BYTES = 200_000_000


def run_doctor(given: GivenArgs) -> int:
    checks = list(run_checks())
    count = {level: sum(check.level == level for check in checks) for level in MARKS}
    code = 1 if count["error"] else 0
    result = {"ok": not code, "errors": count["error"], "warnings": count["warning"], "checks": checks}
    style = choose_style()
    summary = f"{format_quantity(count['error'], 'error')}, {format_quantity(count['warning'], 'warning')}"
    lines = [f"Parley {__version__} doctor", *(format_check(check, style) for check in checks), style.bold(summary)]
    return write_result(given, result, lines, code)


def format_check(check: DoctorFinding, style: Styles) -> str:
    paint = {"ok": style.good, "warning": style.warning, "error": style.bad}[check.level]
    return f"{paint(MARKS[check.level])} {style.bold(check.name)}: {printable(check.detail, 2_000)}"


def run_checks() -> Iterator[DoctorFinding]:
    yield from check_installation()
    yield from check_resident()
    try:
        launch = open_launch(report=lambda text: None)  # each check reports what it finds
    except (UsageError, SessionError) as exc:
        yield DoctorFinding("settings", "error", str(exc))
        return
    yield from check_configuration(launch)
    yield check_config_folder(launch.config)
    yield check_disk(launch.config)
    yield from report_errors("sessions", check_sessions, launch)
    yield check_bytecode()  # last: it looks at all modules that the other checks have loaded


class DoctorFinding(Struct, frozen=True):
    """One finding. An error keeps a session from working; a warning does not."""

    name: str
    level: Level
    detail: str


def check_installation() -> Iterator[DoctorFinding]:
    found = find_installation()
    yield DoctorFinding("version", "ok", f"Parley {__version__}, protocol of Claude Code {PROTOCOL_LEVEL}")
    yield DoctorFinding("installation", "ok", f"{found.method} in {found.location}")
    yield DoctorFinding("python", "ok", f"{platform.python_version()} ({sys.executable}, {platform.platform()})")
    yield check_path()
    yield check_claude()
    yield check_extras()
    yield check_program("git", "the model cannot use git, and agents have no worktrees")
    yield check_program("rg", "a slower search in Python is used", is_needed=False)


def check_extras() -> DoctorFinding:
    found = [name for name, (_, modules) in EXTRAS.items() if all(map(is_installed, modules))]
    missing = [f"{name} ({use})" for name, (use, _) in EXTRAS.items() if name not in found]
    if not missing:
        return DoctorFinding("extras", "ok", "all are installed")
    installed = f"installed: {', '.join(found)}; " if found else ""
    return DoctorFinding("extras", "ok", f"{installed}not installed: {', '.join(missing)}; {how_to_install('NAME')}")


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False  # not even the package that contains it


def check_path() -> DoctorFinding:
    path = shutil.which("parley")
    if path is None:
        return DoctorFinding("PATH", "warning", "`parley` is not on the PATH")
    if os.path.realpath(path) != os.path.realpath(sys.argv[0]) and os.path.basename(sys.argv[0]) == "parley":
        return DoctorFinding("PATH", "warning", f"`parley` on the PATH is {path}, but this program is {sys.argv[0]}")
    return DoctorFinding("PATH", "ok", f"`parley` on the PATH is {path}")


def check_claude() -> DoctorFinding:
    """Which program clients start that look for `claude` on the PATH."""
    path = shutil.which("claude")
    if path is None:
        return DoctorFinding(
            "claude", "ok", f"not on the PATH; `parley link claude` creates a link to Parley. {BUNDLED}"
        )
    target = os.path.realpath(path)
    is_ours = os.path.basename(target) == "parley"
    what = "a link to Parley" if is_ours else "not Parley"
    return DoctorFinding("claude", "ok", f"`claude` on the PATH is {path}, {what}. {BUNDLED}")


def check_program(name: str, loss: str, *, is_needed: bool = True) -> DoctorFinding:
    is_on_path = shutil.which(name) is not None
    path = find_trusted(name, os.environ, [os.getcwd()]) if is_on_path else None
    path = path or shutil.which(name, path=os.path.dirname(sys.executable))
    if path is None:
        return DoctorFinding(name, "warning" if is_needed else "ok", f"not found: {loss}")
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
        return DoctorFinding(name, "warning", f"{path} cannot be run: {type(exc).__name__}")
    return DoctorFinding(name, "ok", f"{version or 'unknown version'} ({path})")


def check_bytecode() -> DoctorFinding:
    """Python compiles what it loads, so what is not compiled now is compiled again at every start."""
    loaded = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "parley"]
    cached = [path for module in loaded if (path := getattr(module, "__cached__", None))]
    missing = [path for path in cached if not os.path.exists(path)]
    if not missing:
        return DoctorFinding("bytecode", "ok", f"all {len(cached)} loaded modules are compiled")
    folder = os.path.dirname(find_spec("parley").origin or "")  # type: ignore[union-attr]  # it is running
    return DoctorFinding(
        "bytecode",
        "warning",
        f"{len(missing)} of {len(cached)} loaded modules are not compiled, so every start is slower: run "
        f"`{sys.executable} -m compileall -q {folder}` as a user who may write there",
    )


def check_resident() -> Iterator[DoctorFinding]:
    """Yields nothing if sessions here are started without a resident engine."""
    if os.environ.get(RESIDENT, "") in ("", "0"):
        return
    if os.environ[RESIDENT] != "1" or sys.platform != "linux":
        yield DoctorFinding("resident", "warning", f"{RESIDENT} has an effect only on Linux and with the value 1")
        return
    try:
        read_idle_seconds()
        servers = [server for server in list_servers() if server.is_ours]
    except UsageError as exc:
        yield DoctorFinding("resident", "warning", f"{exc}; sessions start without a resident engine")
        return
    if not servers:
        yield DoctorFinding("resident", "ok", "no resident engine is running; the next session starts one")
    for server in servers:
        yield DoctorFinding("resident", "warning" if server.refusal else "ok", describe(server))


def check_configuration(launch: LaunchContext) -> Iterator[DoctorFinding]:
    files = [layer.path for layer in launch.settings.layers()]
    yield DoctorFinding("settings files", "ok", ", ".join(files) or "none")
    for warning in (*launch.settings.warnings(), *find_hook_problems(launch)):
        yield DoctorFinding("settings", "warning", warning.removeprefix("settings: "))
    given = [name for name in KEY_VARIABLES if launch.environment.get(name)]
    keys = f"set in the environment: {', '.join(given)}"
    yield DoctorFinding("keys", "ok", keys if given else "no environment variable with an API key is set")
    yield from report_errors("model", check_model, launch)
    yield from report_errors("model server", check_server, launch)
    yield check_sandbox(launch)
    yield from report_errors("MCP servers", check_mcp_servers, launch)


def report_errors(
    name: str, check: Callable[[LaunchContext], Iterator[DoctorFinding]], launch: LaunchContext
) -> Iterator[DoctorFinding]:
    """What a check finds, and what keeps it from looking."""
    try:
        yield from check(launch)
    except (UsageError, SessionError) as exc:
        yield DoctorFinding(name, "error", str(exc))


def check_model(launch: LaunchContext) -> Iterator[DoctorFinding]:
    status = find_status(launch)
    what = f"{status.model} ({status.backend})"
    if status.is_usable:
        yield DoctorFinding("model", "ok", f"{what}, key: {status.source}")
    else:
        yield DoctorFinding("model", "error", f"{what}: {status.problem}")


def check_server(launch: LaunchContext) -> Iterator[DoctorFinding]:
    """Whether the server of the model answers, if the user configured its address."""
    server = probe_server(ModelFactory(launch))
    text = f"{server.address} ({server.variable}) answers"
    if not server.address:
        text = f"{server.backend} has no server address to check"
    elif not server.variable:
        text = f"{server.address} (not contacted; `parley models --check` sends a request)"
    elif server.problem:
        yield DoctorFinding("model server", "error", f"{server.problem} (the address is from {server.variable})")
        return
    yield DoctorFinding("model server", "ok", text)


def check_sandbox(launch: LaunchContext) -> DoctorFinding:
    """Which sandbox this machine offers, and why."""
    merged = launch.settings.merged
    wanted, offer = merged.is_on("sandbox.enabled"), offer_for(merged)
    text = f"{offer.kind}: {offer.reason}" if offer.kind != "none" else f"none: {offer.reason}"
    if offer.kind != "bubblewrap" and (hint := describe_missing()):
        text += f"; {hint}"
    text += "; commands run in it (sandbox.enabled)" if wanted and offer.kind != "none" else ""
    text += "; root cannot bypass permissions, because IS_SANDBOX=1 is not set" if is_bare_root(launch) else ""
    return DoctorFinding("sandbox", "error" if wanted and offer.kind == "none" else "ok", text)


def check_mcp_servers(launch: LaunchContext) -> Iterator[DoctorFinding]:
    """Connect to the MCP servers, and load the plugins."""
    problems: list[str] = []
    servers, _ = asyncio.run(check_servers(open_launch(report=problems.append)))
    for problem in problems:
        yield DoctorFinding("MCP servers", "warning", problem.removeprefix("settings: "))
    if not servers and not problems:
        yield DoctorFinding("MCP servers", "ok", "none configured")
    for server in servers:
        level: Level = "ok" if server.status == "connected" else "warning"
        reason = f" — {server.reason}" if server.reason else ""
        yield DoctorFinding(f"MCP server {server.spec.name}", level, f"{server.describe_status(launch.cwd)}{reason}")


def check_config_folder(folder: Path) -> DoctorFinding:
    if not folder.exists():
        return DoctorFinding("config directory", "ok", f"{folder} (created when it is needed)")
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
    except OSError as exc:
        return DoctorFinding("config directory", "error", f"cannot write to {folder}: {exc.strerror}")
    if not os.access(folder, os.R_OK | os.X_OK):
        return DoctorFinding("config directory", "error", f"cannot read {folder}")
    return DoctorFinding("config directory", "ok", str(folder))


def check_disk(folder: Path) -> DoctorFinding:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    return DoctorFinding("disk", "warning" if free < LOW_BYTES else "ok", f"{format_size(free)} free ({existing})")


def check_sessions(launch: LaunchContext) -> Iterator[DoctorFinding]:
    """Raises UsageError, SessionError."""
    store = SessionStores(launch).store()
    found = store.list(launch.cwd, READ_SESSIONS)
    held = sum(store.is_held(info.id) for info in found)
    damaged = [problem for info in found if (problem := find_damage(store, info.id))]
    which = f"the latest {READ_SESSIONS}" if len(found) == READ_SESSIONS else str(len(found))
    yield DoctorFinding("sessions", "ok", f"{which} of this directory checked: {held} in use, {len(damaged)} damaged")
    for problem in damaged:
        yield DoctorFinding("session", "warning", problem)


def find_damage(store: Store, session_id: str) -> str | None:
    try:
        for _ in store.read(session_id):
            pass
    except SessionError as exc:
        return str(exc)
    return None
