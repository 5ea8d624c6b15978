"""Read the file in which Claude Code keeps MCP servers and much else: `.claude.json`.

    ~/.claude.json, or $CLAUDE_CONFIG_DIR/.claude.json

    {"mcpServers": {...},                                        scope user: all projects
     "projects": {"/home/me/project": {"mcpServers": {...}}}}    scope local: one project

See also: `user_config_edit.py` changes it, `settings/mcp_files.py` has the other files that declare servers.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from parley.protocol.base import Struct
from parley.settings import safe_read

MOST_BYTES = 64_000_000
"""As much as `session_settings.py` looks at."""


class ProjectServers(Struct, frozen=True, kw_only=True):
    """What the file says about one project, as far as it concerns MCP servers."""

    mcpServers: dict[str, Any] = {}
    disabledMcpServers: list[str] = []
    """Servers that the user switched off in this project."""
    disabledMcpjsonServers: list[str] = []
    """Servers of `.mcp.json` that the user rejected."""


class UserConfig(Struct, frozen=True, kw_only=True):
    """The parts of the file that are read. Everything else is skipped without being decoded."""

    mcpServers: dict[str, Any] = {}
    projects: dict[str, Raw] = {}

    def project(self, folders: tuple[str, ...]) -> ProjectServers:
        """The entries of these folders; the first that has a server wins. Raises UnreadableFile."""
        found = ProjectServers()
        for folder in folders:
            raw = self.projects.get(folder)
            if raw is None:
                continue
            try:
                entry = msgspec.json.decode(raw, type=ProjectServers)
            except msgspec.ValidationError as exc:
                raise safe_read.UnreadableFile(f"has an invalid entry for {folder}: {exc}") from None
            found = ProjectServers(
                mcpServers={**entry.mcpServers, **found.mcpServers},
                disabledMcpServers=[*found.disabledMcpServers, *entry.disabledMcpServers],
                disabledMcpjsonServers=[*found.disabledMcpjsonServers, *entry.disabledMcpjsonServers],
            )
        return found


def read_user_config(path: Path) -> UserConfig:
    """Raises UnreadableFile, or MissingFile."""
    data = safe_read.read_file(path, most_bytes=MOST_BYTES).data
    try:
        return msgspec.json.decode(data or b"{}", type=UserConfig)
    except msgspec.ValidationError as exc:
        raise safe_read.UnreadableFile(f"is invalid: {exc}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise safe_read.UnreadableFile(f"is not valid JSON: {exc}", safe_read.line_of_error(data, str(exc))) from None


def project_folders(cwd: str) -> tuple[str, ...]:
    """The names under which a folder may be listed: itself, and the root of its repository."""
    return tuple(dict.fromkeys((cwd, project_root(cwd))))


def project_root(cwd: str) -> str:
    """The name that Claude Code lists a folder under: the root of its repository, else the folder."""
    for folder in (Path(cwd), *Path(cwd).parents):
        if os.path.lexists(folder / ".git"):
            return str(folder)
    return cwd
