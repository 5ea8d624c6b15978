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
from parley.settings.base import MCP_FILE, TREE, Flaw, Merged, Trust, entry, shown


class Written(Struct, frozen=True, kw_only=True):
    """Some servers, as somebody wrote them."""

    source: str
    place: str
    servers: Json
    by_tree: bool = False
    """Whether the working tree says so: then our keys are not filled in."""


def on_command_line(texts: Sequence[str], cwd: str) -> list[Written]:
    """Raises UsageError."""
    return [given(text, cwd) for text in texts if text.strip()]


def given(text: str, cwd: str) -> Written:
    inline = text.lstrip().startswith("{")
    place = "--mcp-config" if inline else text
    try:
        if inline:
            data = text.encode("utf-8", "surrogateescape")
        else:
            with open(os.path.join(cwd, text), "rb") as opened:  # the person names it: it may be a pipe of their shell
                data = opened.read(safe_read.MOST_BYTES + 1)
        values = safe_read.json_object(data)
    except OSError as flaw:
        raise UsageError(f"the MCP configuration {place} cannot be read: {flaw.strerror}") from None
    except safe_read.Unfit as flaw:
        raise UsageError(f"the MCP configuration {place} {flaw}") from None
    if (doubled := doubled_key(data)) is not None:
        raise UsageError(f"the MCP configuration {place}: {doubled}")
    servers = values.get("mcpServers")
    if not isinstance(servers, dict):
        raise UsageError(f"the MCP configuration {place} must have the object mcpServers")
    return Written(source="dynamic", place=place, servers=servers)


def doubled_key(data: bytes) -> str | None:
    from parley.protocol.duplicate_keys import find_doubled  # most sessions have no such file

    return find_doubled(data)


def in_settings(merged: Merged) -> list[Written]:
    return [
        Written(
            source="dynamic" if value.source == "flag" else value.source,
            place=shown(value.path),
            servers={name: value.value},
            by_tree=value.source in TREE,
        )
        for name, value in merged.servers.items()
    ]


def in_project(path: str, trust: Trust, merged: Merged) -> tuple[list[Written], list[str]]:
    """What `.mcp.json` says, if the folder is trusted; and what is wrong with it, or why it does not count."""
    folder = os.path.dirname(path)
    try:
        data = safe_read.read(path, beneath=(folder,)).data
        values = safe_read.json_object(data)
    except safe_read.Absent:
        return [], []
    except safe_read.Unfit as flaw:
        return [], [str(Flaw(path=path, text=f"{flaw}; its MCP servers are not used", line=flaw.line))]
    servers = values.get("mcpServers")
    if not isinstance(servers, dict):
        return [], [str(Flaw(path=path, text="must have the object mcpServers; its MCP servers are not used"))]
    obstacles = {name: trust.obstacle("project", entry(f"{MCP_FILE}.{name}", servers[name])) for name in servers}
    flaws = (
        [str(Flaw(path=path, text=f"{doubled}, and only the last one counts"))]
        if (doubled := doubled_key(data))
        else []
    )
    for reason in dict.fromkeys(reason for reason in obstacles.values() if reason is not None):
        names = ", ".join(shown(name) for name in [name for name in servers if obstacles[name] == reason][:12])
        advice = f"{reason} (`parley trust {shown(folder)}` trusts it)"
        flaws.append(f"settings: {shown(path)}: without effect: MCP servers {names}: {advice}")
    off = merged.get("disabledMcpjsonServers", ())
    kept = {name: server for name, server in servers.items() if name not in off and obstacles[name] is None}
    return [Written(source="project", place=shown(path), servers=kept, by_tree=True)] if kept else [], flaws
