"""`parley doctor`: checks of the installation, the configuration and the session store."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from parley.cli.commands.resident import describe, list_servers, read_idle_seconds
from parley.cli.commands.setup import find_installation
from parley.cli.commands.subcommand import GivenArgs, open_launch, write_result
from parley.cli.main import RESIDENT
from parley.cli.style import choose_style
from parley.compose.launch_context import LaunchContext
from parley.compose.models import ModelFactory
from parley.compose.permissions import is_bare_root
from parley.compose.setup.keys import find_status
from parley.compose.setup.model_server import probe_server
from parley.compose.stores import SessionStores
from parley.errors import SessionError, UsageError
from parley.protocol.base import Struct
from parley.settings.base import printable
from parley.stores.base import Store
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.tables import format_size
from parley.version import PROTOCOL_LEVEL, __version__, how_to_install
from parley.workspace.search_path import find_trusted

MARKS: dict[Level, str] = {"ok": "✔", "warning": "!", "error": "✘"}
Level = Literal["ok", "warning", "error"]
EXTRAS = {
    "mcp": ("MCP servers with a URL", ("mcp",)),
    "tui": ("Markdown and colours at a terminal", ("rich", "markdown_it")),
    "gateway": ("parley serve", ("starlette", "uvicorn", "uvloop", "websockets")),
    "otel": ("OpenTelemetry traces", ("opentelemetry.sdk",)),
    "postgres": ("sessions in PostgreSQL", ("psycopg",)),
    "scale": ("sessions on many machines", ("nats",)),
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
    summary = f"{plural(count['error'], 'error')}, {plural(count['warning'], 'warning')}"
    lines = [f"Parley {__version__} doctor", *(format_check(check, style) for check in checks), style.bold(summary)]
    return write_result(given, result, lines, code)


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def format_check(check: Check, style: Styles) -> str:
    paint = {"ok": style.good, "warning": style.warning, "error": style.bad}[check.level]
    return f"{paint(MARKS[check.level])} {style.bold(check.name)}: {printable(check.detail, 2_000)}"


def run_checks() -> Iterator[Check]:
    yield from check_installation()
    yield from check_resident()
    try:
        launch = open_launch()
    except (UsageError, SessionError) as exc:
        yield Check("settings", "error", str(exc))
        return
    launch.warn = lambda text: None  # each check reports what it finds
    yield from check_configuration(launch)
    yield from check_store(launch)
    yield check_bytecode()  # last: it looks at all modules that the other checks have loaded


class Check(Struct, frozen=True):
    """One finding. An error keeps a session from working; a warning does not."""

    name: str
    level: Level
    detail: str


def check_installation() -> Iterator[Check]:
    found = find_installation()
    yield Check("version", "ok", f"Parley {__version__}, protocol of Claude Code {PROTOCOL_LEVEL}")
    yield Check("installation", "ok", f"{found.method} in {found.location}")
    yield Check("python", "ok", f"{platform.python_version()} ({sys.executable}, {platform.platform()})")
    yield check_path()
    yield check_claude()
    yield check_extras()
    yield check_program("git", "the model cannot use git, and agents have no worktrees")
    yield check_program("rg", "a slower search in Python is used", is_needed=False)


def check_extras() -> Check:
    found = [name for name, (_, modules) in EXTRAS.items() if all(map(is_installed, modules))]
    missing = [f"{name} ({use})" for name, (use, _) in EXTRAS.items() if name not in found]
    if not missing:
        return Check("extras", "ok", "all are installed")
    installed = f"installed: {', '.join(found)}; " if found else ""
    return Check("extras", "ok", f"{installed}not installed: {', '.join(missing)}; {how_to_install('NAME')}")


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False  # not even the package that contains it


def check_path() -> Check:
    path = shutil.which("parley")
    if path is None:
        return Check("PATH", "warning", "`parley` is not on the PATH")
    if os.path.realpath(path) != os.path.realpath(sys.argv[0]) and os.path.basename(sys.argv[0]) == "parley":
        return Check("PATH", "warning", f"`parley` on the PATH is {path}, but this program is {sys.argv[0]}")
    return Check("PATH", "ok", f"`parley` on the PATH is {path}")


def check_claude() -> Check:
    """Which program clients start that look for `claude` on the PATH."""
    path = shutil.which("claude")
    if path is None:
        return Check("claude", "ok", f"not on the PATH; `parley link claude` creates a link to Parley. {BUNDLED}")
    target = os.path.realpath(path)
    is_ours = os.path.basename(target) == "parley"
    what = "a link to Parley" if is_ours else "not Parley"
    return Check("claude", "ok", f"`claude` on the PATH is {path}, {what}. {BUNDLED}")


def check_program(name: str, loss: str, *, is_needed: bool = True) -> Check:
    is_on_path = shutil.which(name) is not None
    path = find_trusted(name, os.environ, [os.getcwd()]) if is_on_path else None
    path = path or shutil.which(name, path=os.path.dirname(sys.executable))
    if path is None:
        return Check(name, "warning" if is_needed else "ok", f"not found: {loss}")
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
        return Check(name, "warning", f"{path} cannot be run: {type(exc).__name__}")
    return Check(name, "ok", f"{version or 'unknown version'} ({path})")


def check_bytecode() -> Check:
    """Python compiles what it loads, so what is not compiled now is compiled again at every start."""
    loaded = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "parley"]
    cached = [path for module in loaded if (path := getattr(module, "__cached__", None))]
    missing = [path for path in cached if not os.path.exists(path)]
    if not missing:
        return Check("bytecode", "ok", f"all {len(cached)} loaded modules are compiled")
    folder = os.path.dirname(find_spec("parley").origin or "")  # type: ignore[union-attr]  # it is running
    return Check(
        "bytecode",
        "warning",
        f"{len(missing)} of {len(cached)} loaded modules are not compiled, so every start is slower: run "
        f"`{sys.executable} -m compileall -q {folder}` as a user who may write there",
    )


def check_resident() -> Iterator[Check]:
    """Yields nothing if sessions here are started without a resident engine."""
    if os.environ.get(RESIDENT, "") in ("", "0"):
        return
    if os.environ[RESIDENT] != "1" or sys.platform != "linux":
        yield Check("resident", "warning", f"{RESIDENT} has an effect only on Linux and with the value 1")
        return
    try:
        read_idle_seconds()
        servers = [server for server in list_servers() if server.is_ours]
    except UsageError as exc:
        yield Check("resident", "warning", f"{exc}; sessions start without a resident engine")
        return
    if not servers:
        yield Check("resident", "ok", "no resident engine is running; the next session starts one")
    for server in servers:
        yield Check("resident", "warning" if server.refusal else "ok", describe(server))


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
    from parley.cli.commands.mcp.servers import check_servers

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


def check_store(launch: LaunchContext) -> Iterator[Check]:
    yield check_config_folder(launch.config)
    yield check_disk(launch.config)
    try:
        store = SessionStores(launch).store()
        yield from check_sessions(launch, store)
    except (UsageError, SessionError) as exc:
        yield Check("sessions", "error", str(exc))


def check_config_folder(folder: Path) -> Check:
    if not folder.exists():
        return Check("config directory", "ok", f"{folder} (created when it is needed)")
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
    except OSError as exc:
        return Check("config directory", "error", f"cannot write to {folder}: {exc.strerror}")
    if not os.access(folder, os.R_OK | os.X_OK):
        return Check("config directory", "error", f"cannot read {folder}")
    return Check("config directory", "ok", str(folder))


def check_disk(folder: Path) -> Check:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    return Check("disk", "warning" if free < LOW_BYTES else "ok", f"{format_size(free)} free ({existing})")


def check_sessions(launch: LaunchContext, store: Store) -> Iterator[Check]:
    """Raises SessionError."""
    found = store.list(launch.cwd, READ_SESSIONS)
    held = sum(store.is_held(info.id) for info in found)
    damaged = [problem for info in found if (problem := find_damage(store, info.id))]
    which = f"the latest {READ_SESSIONS}" if len(found) == READ_SESSIONS else str(len(found))
    yield Check("sessions", "ok", f"{which} of this directory checked: {held} in use, {len(damaged)} damaged")
    for problem in damaged:
        yield Check("session", "warning", problem)


def find_damage(store: Store, session_id: str) -> str | None:
    try:
        for _ in store.read(session_id):
            pass
    except SessionError as exc:
        return str(exc)
    return None
