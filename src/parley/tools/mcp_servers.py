"""Tools about MCP servers: their resources, and waiting for those that are still connecting.

The session lists the servers; how they are reached is decided elsewhere (`engine/mcp/`).
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import Context, Tool, ToolOutput
from parley.workspace.base import Scope

MAX_SECONDS = 60.0
NOTHING_PENDING = "No MCP server is still connecting."


class ResourceServer(Protocol):
    """An MCP server that has resources. All methods raise ToolError."""

    async def resources(self) -> list[Json]:
        """`uri`, `name`, and where known `mimeType` and `description`."""

    async def read(self, uri: str) -> list[Json]:
        """The contents: `uri`, and where known `mimeType` and `text`."""

    async def directory(self, uri: str) -> list[Json]:
        """The direct children of a directory: `uri`, `name`, and where known `mimeType`."""


class ListResourcesInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    server: Annotated[str | None, Meta(description="Only the resources of this server")] = None


class ListMcpResources(Tool):
    name = "ListMcpResourcesTool"
    reads_only = True
    input = ListResourcesInput
    description = "Lists the resources that the connected MCP servers offer: address, name and server."

    async def run(self, call: ListResourcesInput, context: Context, reach: Scope) -> ToolOutput:
        named = call.server
        servers = context.session.resource_servers() if named is None else {named: find_server(named, context)}
        lists = await asyncio.gather(*map(list_resources, servers.values()))
        found = [{**one, "server": name} for name, listed in zip(servers, lists, strict=True) for one in listed[0]]
        errors = [error for _, error in lists if error]
        if errors and not found:
            raise ToolError("\n".join(errors))
        text = resource_text(found) if found else "There are no resources."
        return ToolOutput(content="\n".join([text, *errors]), detail=found)


async def list_resources(server: ResourceServer) -> tuple[list[Json], str]:
    """The resources of a server, or an error message: a failing server does not hide the others."""
    try:
        return await server.resources(), ""
    except ToolError as exc:
        return [], str(exc)


class ReadResourceInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    server: Annotated[str, Meta(description="The server's name")]
    uri: Annotated[str, Meta(description="The resource's address, as ListMcpResourcesTool gives it")]


class ReadMcpResource(Tool):
    name = "ReadMcpResourceTool"
    reads_only = True
    input = ReadResourceInput
    description = "Reads one resource of an MCP server."

    async def run(self, call: ReadResourceInput, context: Context, reach: Scope) -> ToolOutput:
        contents = await find_server(call.server, context).read(call.uri)
        found = {"contents": contents}
        return ToolOutput(content=resource_text(found), detail=found)


class ReadResourceDirInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    server: Annotated[str, Meta(description="The server's name")]
    uri: Annotated[str, Meta(description="The address of the directory")]


class ReadMcpResourceDir(Tool):
    name = "ReadMcpResourceDirTool"
    reads_only = True
    input = ReadResourceDirInput
    description = (
        "Lists the direct children of a directory among the resources of an MCP server. "
        "Subdirectories have the type inode/directory."
    )

    async def run(self, call: ReadResourceDirInput, context: Context, reach: Scope) -> ToolOutput:
        server = find_server(call.server, context)
        try:
            found = await server.directory(call.uri)
        except ToolError as exc:
            return ToolOutput(content=str(exc), detail={"resources": [], "error": str(exc)}, is_error=True)
        text = resource_text(found) if found else f"The directory {call.uri!r} has no children."
        return ToolOutput(content=text, detail={"resources": found})


def find_server(name: str, context: Context) -> ResourceServer:
    """Raises ToolError."""
    servers = context.session.resource_servers()
    if name not in servers:
        known = ", ".join(sorted(servers)) or "none"
        raise ToolError(f"There is no MCP server {name!r} with resources. Servers with resources: {known}.")
    return servers[name]


def resource_text(found: list[Json] | Json) -> str:
    return msgspec.json.encode(found).decode()


class WaitForServersInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    servers: Annotated[list[str] | None, Meta(description="Wait only for these servers; by default for all")] = None


class WaitForMcpServers(Tool):
    name = "WaitForMcpServers"
    reads_only = True
    input = WaitForServersInput
    description = (
        f"Waits until MCP servers that are still connecting have connected or failed, at most {MAX_SECONDS:.0f} "
        "seconds. Their tools can be called afterwards."
    )

    async def run(self, call: WaitForServersInput, context: Context, reach: Scope) -> ToolOutput:
        servers = context.session.pending_servers
        pending = servers.names() if servers is not None else []
        if servers is None or (not call.servers and not pending):
            return ToolOutput(content=NOTHING_PENDING, detail={"servers": {}})
        states = await servers.wait(pending if call.servers is None else call.servers, MAX_SECONDS)
        if unknown := [name for name in call.servers or () if name not in states]:
            known = ", ".join(pending) or "none"
            raise ToolError(f"There is no MCP server {unknown[0]!r}. Servers that are still connecting: {known}.")
        text = "\n".join(f"{name}: {state}" for name, state in states.items())
        return ToolOutput(content=text or NOTHING_PENDING, detail={"servers": states})
