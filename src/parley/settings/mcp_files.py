"""Collect declarations of MCP servers. `parley.mcp` interprets them.

    dynamic   --mcp-config, each a file or JSON, and `mcpServers` of initialize; an error is fatal
    managed, local, user, project   `mcpServers` in settings, as far as the layer takes effect
    local     .claude.json, the entry of this project
    project   .mcp.json of the project, if the folder is trusted or the user's settings approve the server
    user      .claude.json, for all projects

Highest precedence first: if two servers have the same name, the first is used. With
--strict-mcp-config, only the command line is used.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from parley.errors import UsageError
from parley.protocol.base import Json, Struct, find_duplicate_key
from parley.settings import safe_read
from parley.settings.base import MCP_FILE, TREE, MergedSettings, ProjectTrust, SettingsProblem, format_entry, printable
from parley.settings.sources import SourceSelection
from parley.settings.tree import HOST_TREE, FileTree


class ServerDeclaration(Struct, frozen=True, kw_only=True):
    """Servers as they are written in one file or flag."""

    source: str
    path: str
    servers: Json
    by_tree: bool = False
    """Whether it comes from the working tree. Secrets of the environment are not expanded then."""
    by_client: bool = False
    """Whether it comes from the command line."""
    is_added: bool = False
    """Whether a flag of the client adds it: `--mcp-config` or `--settings`."""


def from_command_line(texts: Sequence[str], cwd: str) -> list[ServerDeclaration]:
    """Raises UsageError."""
    return [parse_given(text, cwd) for text in texts if text.strip()]


def parse_given(text: str, cwd: str) -> ServerDeclaration:
    inline = text.lstrip().startswith("{")
    path = "--mcp-config" if inline else text
    try:
        if inline:
            data = text.encode("utf-8", "surrogateescape")
        else:
            with open(os.path.join(cwd, text), "rb") as opened:  # the user names it, so it may be a pipe of the shell
                data = opened.read(safe_read.MOST_BYTES + 1)
        values = safe_read.parse_json_object(data)
    except OSError as exc:
        raise UsageError(f"cannot read the MCP configuration {path}: {exc.strerror}") from None
    except safe_read.UnreadableFile as exc:
        raise UsageError(f"the MCP configuration {path} {exc}") from None
    if (duplicate := find_duplicate_key(data)) is not None:
        raise UsageError(f"the MCP configuration {path}: {duplicate}")
    servers = values.get("mcpServers")
    if not isinstance(servers, dict):
        raise UsageError(f"the MCP configuration {path} must contain an object `mcpServers`")
    return ServerDeclaration(source="dynamic", path=path, servers=servers, by_client=True, is_added=True)


def from_settings(merged: MergedSettings) -> list[ServerDeclaration]:
    return [
        ServerDeclaration(
            source="dynamic" if value.source == "flag" else value.source,
            path=printable(value.path),
            servers={name: value.value},
            by_tree=value.source in TREE,
            is_added=value.source == "flag",
        )
        for name, value in merged.servers.items()
    ]


def list_pending(path: str, trust: ProjectTrust) -> Json:
    """Return the servers of `.mcp.json` that have no effect until the folder is trusted."""
    folder = os.path.dirname(path)
    try:
        servers = safe_read.parse_json_object(safe_read.read_file(path, beneath=(folder,)).data).get("mcpServers")
    except safe_read.UnreadableFile:  # `from_project` reports it
        return {}
    found = servers.items() if isinstance(servers, dict) else ()
    return {
        name: entry
        for name, entry in found
        if trust.find_obstacle("project", format_entry(f"{MCP_FILE}.{name}", entry)) is not None
    }


class UserServers(Struct, frozen=True, kw_only=True):
    """What `.claude.json` declares."""

    local: list[ServerDeclaration] = []
    user: list[ServerDeclaration] = []
    rejected: tuple[str, ...] = ()
    """Servers of `.mcp.json` that the user rejected."""
    problems: list[str] = []


def from_user_file(path: Path, selection: SourceSelection) -> UserServers:
    """Return the servers of `.claude.json`, as far as their scope is selected."""
    from parley.settings.files.user_config import project_folders, read_user_config

    try:
        found = read_user_config(path)
        project = found.project(project_folders(selection.project))
    except safe_read.MissingFile:
        return UserServers()
    except safe_read.UnreadableFile as exc:
        problem = SettingsProblem(path=str(path), text=f"{exc}; its MCP servers are not used", line=exc.line)
        return UserServers(problems=[str(problem)])

    def declare(source: str, servers: Json) -> list[ServerDeclaration]:
        active = {name: server for name, server in servers.items() if name not in project.disabledMcpServers}
        if not active or not selection.includes(source):
            return []
        return [ServerDeclaration(source=source, path=printable(str(path)), servers=active)]

    return UserServers(
        local=declare("local", project.mcpServers),
        user=declare("user", found.mcpServers),
        rejected=tuple(project.disabledMcpjsonServers),
    )


def from_project(
    path: str,
    trust: ProjectTrust,
    merged: MergedSettings,
    rejected: Collection[str] = (),
    *,
    tree: FileTree = HOST_TREE,
) -> tuple[list[ServerDeclaration], list[str]]:
    """Return the servers of `.mcp.json` that take effect, and warnings about problems and untrusted servers."""
    folder = os.path.dirname(path)
    try:
        data = tree.read_file(path, beneath=(folder,)).data
        values = safe_read.parse_json_object(data)
    except safe_read.MissingFile:
        return [], []
    except safe_read.UnreadableFile as exc:
        return [], [str(SettingsProblem(path=path, text=f"{exc}; its MCP servers are not used", line=exc.line))]
    servers = values.get("mcpServers")
    if not isinstance(servers, dict):
        return [], [
            str(
                SettingsProblem(
                    path=path, text="the file must contain an object `mcpServers`; its servers are not used"
                )
            )
        ]
    approves_all, approved = merged.is_on("enableAllProjectMcpServers"), merged.get("enabledMcpjsonServers", ())
    obstacles = {
        name: None
        if approves_all or name in approved
        else trust.find_obstacle("project", format_entry(f"{MCP_FILE}.{name}", servers[name]))
        for name in servers
    }
    warnings = (
        [str(SettingsProblem(path=path, text=f"{duplicate}; only the last one takes effect"))]
        if (duplicate := find_duplicate_key(data))
        else []
    )
    for reason in dict.fromkeys(reason for reason in obstacles.values() if reason is not None):
        names = ", ".join(printable(name) for name in [name for name in servers if obstacles[name] == reason][:12])
        advice = f"{reason} (to trust it, run `parley trust {printable(folder)}`)"
        warnings.append(f"settings: {printable(path)}: the MCP servers {names} are not used: {advice}")
    disabled = (*merged.get("disabledMcpjsonServers", ()), *rejected)
    active = {name: server for name, server in servers.items() if name not in disabled and obstacles[name] is None}
    return [
        ServerDeclaration(source="project", path=printable(path), servers=active, by_tree=True)
    ] if active else [], warnings
