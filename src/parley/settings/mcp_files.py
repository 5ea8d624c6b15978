"""Where the configuration of MCP servers is written, and by whom; what it means is said elsewhere.

    dynamic   --mcp-config, each a file or JSON: the person's word, must be readable
    managed, local, user, project   `mcpServers` of settings, as far as their layer counts
    project   .mcp.json of the project, once the folder is trusted

The strongest first: of servers with one name the first counts. With --strict-mcp-config only
the command line does.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from parley.errors import UsageError
from parley.protocol.base import Json, Struct
from parley.settings import safe_read
from parley.settings.base import MCP_FILE, TREE, MergedSettings, ProjectTrust, SettingsProblem, format_entry, printable


class ServerDeclaration(Struct, frozen=True, kw_only=True):
    """Some servers, as somebody wrote them."""

    source: str
    path: str
    servers: Json
    by_tree: bool = False
    """Whether the working tree says so: then our keys are not filled in."""


def from_command_line(texts: Sequence[str], cwd: str) -> list[ServerDeclaration]:
    """Raises UsageError."""
    return [parse_given(text, cwd) for text in texts if text.strip()]


def parse_given(text: str, cwd: str) -> ServerDeclaration:
    inline = text.lstrip().startswith("{")
    place = "--mcp-config" if inline else text
    try:
        if inline:
            data = text.encode("utf-8", "surrogateescape")
        else:
            with open(os.path.join(cwd, text), "rb") as opened:  # the person names it: it may be a pipe of their shell
                data = opened.read(safe_read.MOST_BYTES + 1)
        values = safe_read.parse_json_object(data)
    except OSError as exc:
        raise UsageError(f"the MCP configuration {place} cannot be read: {exc.strerror}") from None
    except safe_read.UnreadableFile as exc:
        raise UsageError(f"the MCP configuration {place} {exc}") from None
    if (doubled := check_duplicate_keys(data)) is not None:
        raise UsageError(f"the MCP configuration {place}: {doubled}")
    servers = values.get("mcpServers")
    if not isinstance(servers, dict):
        raise UsageError(f"the MCP configuration {place} must have the object mcpServers")
    return ServerDeclaration(source="dynamic", path=place, servers=servers)


def check_duplicate_keys(data: bytes) -> str | None:
    from parley.protocol.duplicate_keys import find_duplicate_key  # most sessions have no such file

    return find_duplicate_key(data)


def from_settings(merged: MergedSettings) -> list[ServerDeclaration]:
    return [
        ServerDeclaration(
            source="dynamic" if value.source == "flag" else value.source,
            path=printable(value.path),
            servers={name: value.value},
            by_tree=value.source in TREE,
        )
        for name, value in merged.servers.items()
    ]


def from_project(path: str, trust: ProjectTrust, merged: MergedSettings) -> tuple[list[ServerDeclaration], list[str]]:
    """What `.mcp.json` says, if the folder is trusted; and what is wrong with it, or why it does not count."""
    folder = os.path.dirname(path)
    try:
        data = safe_read.read_file(path, beneath=(folder,)).data
        values = safe_read.parse_json_object(data)
    except safe_read.MissingFile:
        return [], []
    except safe_read.UnreadableFile as exc:
        return [], [str(SettingsProblem(path=path, text=f"{exc}; its MCP servers are not used", line=exc.line))]
    servers = values.get("mcpServers")
    if not isinstance(servers, dict):
        return [], [
            str(SettingsProblem(path=path, text="must have the object mcpServers; its MCP servers are not used"))
        ]
    obstacles = {
        name: trust.find_obstacle("project", format_entry(f"{MCP_FILE}.{name}", servers[name])) for name in servers
    }
    flaws = (
        [str(SettingsProblem(path=path, text=f"{doubled}, and only the last one counts"))]
        if (doubled := check_duplicate_keys(data))
        else []
    )
    for reason in dict.fromkeys(reason for reason in obstacles.values() if reason is not None):
        names = ", ".join(printable(name) for name in [name for name in servers if obstacles[name] == reason][:12])
        advice = f"{reason} (`parley trust {printable(folder)}` trusts it)"
        flaws.append(f"settings: {printable(path)}: without effect: MCP servers {names}: {advice}")
    off = merged.get("disabledMcpjsonServers", ())
    kept = {name: server for name, server in servers.items() if name not in off and obstacles[name] is None}
    return [
        ServerDeclaration(source="project", path=printable(path), servers=kept, by_tree=True)
    ] if kept else [], flaws
