"""The three places in which the user declares MCP servers, by scope; and checks of what stands in them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from msgspec import Raw

from parley.compose.launch_context import LaunchContext
from parley.mcp.base import ServerSpec
from parley.mcp.config import parse_server
from parley.protocol.base import Json
from parley.settings import mcp_files, safe_read
from parley.settings.base import MCP_FILE, SettingsWriteError
from parley.settings.mcp_files import list_pending
from parley.settings.writer import encode

SCOPES = {
    "local": "Local config (private to you in this project)",
    "project": f"Project config (shared via {MCP_FILE})",
    "user": "User config (available in all your projects)",
}
CHOICES = ("enabledMcpjsonServers", "disabledMcpjsonServers")


class AnyVariable(dict[str, str]):
    """Gives every variable a value: whether it is set does not matter before the server is started."""

    def get(self, name: str, default: Any = None) -> Any:
        return "x"


def parse_entry(name: str, entry: Any, source: str) -> ServerSpec:
    """The server that an entry declares, whether its variables are set or not. `problem` says what is wrong with it."""
    return parse_server(name, entry, source, AnyVariable())


def pending_servers(launch: LaunchContext) -> list[ServerSpec]:
    """The servers of `.mcp.json` that have no effect until the folder is trusted."""
    pending = list_pending(os.path.join(launch.cwd, MCP_FILE), launch.settings.trust)
    return [parse_entry(name, entry, "project") for name, entry in pending.items()]


class ServerFiles:
    """Reads and changes the declarations. Its methods raise SettingsWriteError."""

    def __init__(self, user_file: Path, cwd: str) -> None:
        self._user_file = user_file
        self.cwd = cwd
        self._folders = mcp_files.project_folders(cwd)
        self._root = mcp_files.project_root(cwd)

    def path(self, scope: str) -> Path:
        return Path(self.cwd, MCP_FILE) if scope == "project" else self._user_file

    def describe(self, scope: str) -> str:
        """The file of a scope, as messages name it."""
        return f"{self.path(scope)} [project: {self._root}]" if scope == "local" else str(self.path(scope))

    def read(self) -> dict[str, Json]:
        """The entries of each scope."""
        config = self._read_user_file()
        return {
            "local": self._read_project(config, self._folders),
            "project": self._read_mcp_file(),
            "user": config.mcpServers,
        }

    def add(self, scope: str, name: str, entry: Json) -> None:
        def insert(servers: dict[str, Raw]) -> dict[str, Raw]:
            if name in servers:
                raise SettingsWriteError(f"MCP server {name} already exists in {scope} config")
            return {**servers, name: encode(entry)}

        if scope == "local":
            mcp_files.edit_project_servers(self._user_file, self._root, insert)
        else:
            mcp_files.edit_servers(self.path(scope), insert)

    def remove(self, scope: str, name: str) -> None:
        def drop(servers: dict[str, Raw]) -> dict[str, Raw]:
            return {key: value for key, value in servers.items() if key != name}

        if scope != "local":
            mcp_files.edit_servers(self.path(scope), drop)
            return
        config = self._read_user_file()
        for folder in self._folders:
            if name in self._read_project(config, (folder,)):
                mcp_files.edit_project_servers(self._user_file, folder, drop)

    def forget_choices(self) -> None:
        """Empty the lists of servers of `.mcp.json` that the user accepted or rejected in Claude Code."""
        projects = self._read_user_file().projects
        for folder in self._folders:
            if folder in projects:
                mcp_files.edit_project_entry(
                    self._user_file,
                    folder,
                    lambda entry: entry | {key: encode([]) for key in CHOICES if key in entry},
                )

    def _read_user_file(self) -> mcp_files.UserConfig:
        try:
            return mcp_files.read_user_config(self._user_file)
        except safe_read.MissingFile:
            return mcp_files.UserConfig()
        except safe_read.UnreadableFile as exc:
            raise SettingsWriteError(f"{self._user_file} {exc}") from None

    def _read_project(self, config: mcp_files.UserConfig, folders: tuple[str, ...]) -> Json:
        try:
            return config.project(folders).mcpServers
        except safe_read.UnreadableFile as exc:
            raise SettingsWriteError(f"{self._user_file} {exc}") from None

    def _read_mcp_file(self) -> Json:
        path = os.path.join(self.cwd, MCP_FILE)
        try:
            values = safe_read.parse_json_object(safe_read.read_file(path, beneath=(self.cwd,)).data)
        except safe_read.MissingFile:
            return {}
        except safe_read.UnreadableFile as exc:
            raise SettingsWriteError(f"{path} {exc}") from None
        servers = values.get("mcpServers", {})
        if not isinstance(servers, dict):
            raise SettingsWriteError(f"{path}: `mcpServers` must be an object")
        return servers
