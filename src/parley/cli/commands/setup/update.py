"""`parley update` and `parley install`: how Parley was installed, and the command that upgrades it.

Nothing is changed: packages belong to the tool that installed them.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.subcommand import GivenArgs, run_command, write_json, write_lines
from parley.protocol.base import Struct
from parley.version import PROTOCOL_LEVEL, __version__

DISTRIBUTION = "parley-agent"


class Installation(Struct, frozen=True, kw_only=True):
    """How this copy of Parley came here."""

    method: str
    location: str
    command: str
    """Upgrades it."""


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    return run_command(COMMANDS["update"], argv, {"": show_update})


def show_update(given: GivenArgs) -> int:
    """A version that `install` is given changes nothing either."""
    found = find_installation()
    if given.has("json"):
        return write_json(
            {
                "version": __version__,
                "protocol": PROTOCOL_LEVEL,
                "method": found.method,
                "location": found.location,
                "command": found.command,
                "changed": False,
            }
        )
    return write_lines(
        [
            f"Parley {__version__} (protocol of Claude Code {PROTOCOL_LEVEL})",
            f"Installed with {found.method} in {found.location}",
            f"To upgrade it, run: {found.command}",
            "Nothing was changed.",
        ]
    )


def find_installation() -> Installation:
    location = str(Path(__file__).resolve().parents[3])
    try:
        package = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return Installation(method="a source tree", location=location, command="git pull")
    origin = read_origin(package)
    folder = unquote(urlsplit(origin.get("url", "")).path) if "dir_info" in origin else ""
    pull = f"git -C {quote(folder)} pull"
    if folder and origin["dir_info"].get("editable") is True:
        return Installation(method="pip (editable)", location=folder, command=pull)
    parts = Path(sys.prefix).parts
    if "pipx" in parts:
        return Installation(method="pipx", location=location, command=f"pipx upgrade {DISTRIBUTION}")
    if "uv" in parts and "tools" in parts:
        return Installation(method="uv tool", location=location, command=f"uv tool upgrade {DISTRIBUTION}")
    installer = (package.read_text("INSTALLER") or "pip").strip()
    if installer == "conda":
        return Installation(method="conda", location=location, command=f"conda update {DISTRIBUTION}")
    python = quote(sys.executable)
    upgrade = f"uv pip install --python {python}" if installer == "uv" else f"{python} -m pip install"
    return Installation(
        method="uv pip" if installer == "uv" else installer,
        location=location,
        command=(f"{pull} && " if folder else "") + f"{upgrade} --upgrade {name_source(origin, folder)}",
    )


def name_source(origin: dict[str, Any], folder: str) -> str:
    """What pip gets the next version from: the index has no copy of what was installed from elsewhere."""
    if folder:
        return quote(folder)
    if "vcs_info" in origin:
        return quote(f"{origin['vcs_info'].get('vcs', 'git')}+{origin['url']}")
    return "NEW_WHEEL" if "archive_info" in origin else DISTRIBUTION


def read_origin(package: metadata.Distribution) -> dict[str, Any]:
    """Where the package was installed from, if not from an index."""
    text = package.read_text("direct_url.json")
    try:
        return dict(msgspec.json.decode(text)) if text else {}
    except (msgspec.DecodeError, TypeError, ValueError):
        return {}
