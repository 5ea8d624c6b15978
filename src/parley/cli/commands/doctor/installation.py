"""Checks of Python, the PATH and the programs that Parley uses."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec

from parley.cli.commands.doctor.base import Check
from parley.cli.commands.setup.update import find_installation
from parley.version import PROTOCOL_LEVEL, __version__, how_to_install
from parley.workspace.search_path import find_trusted

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
