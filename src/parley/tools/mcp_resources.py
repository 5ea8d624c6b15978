"""ListMcpResourcesTool and ReadMcpResourceTool: what MCP servers have to read.

The servers stand in the context; the tools know nothing of how they are reached.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, ClassVar, Protocol

import msgspec
from msgspec import Meta

from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import Context, Result
from parley.workspace.base import Reach


class ResourceServer(Protocol):
    """An MCP server that has resources. Both raise ToolError."""

    async def resources(self) -> list[Json]:
        """`uri`, `name`, and where known `mimeType` and `description`."""

    async def read(self, uri: str) -> list[Json]:
        """The contents: `uri`, and where known `mimeType` and `text`."""


class ListInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    server: Annotated[str | None, Meta(description="Only the resources of this server")] = None


class ListMcpResources:
    name: ClassVar[str] = "ListMcpResourcesTool"
    reads_only: ClassVar[bool] = True
    input: ClassVar[type[Struct]] = ListInput
    description: ClassVar[str] = "Lists the resources that the connected MCP servers offer: address, name and server."

    async def run(self, call: ListInput, context: Context, reach: Reach) -> Result:
        servers = context.resources if call.server is None else {call.server: server(call.server, context)}
        lists = await asyncio.gather(*map(listed, servers.values()))
        found = [{**one, "server": name} for name, listed in zip(servers, lists, strict=True) for one in listed[0]]
        flaws = [flaw for _, flaw in lists if flaw]
        if flaws and not found:
            raise ToolError("\n".join(flaws))
        text = text_of(found) if found else "There are no resources."
        return Result(content="\n".join([text, *flaws]), detail=found)


async def listed(server: ResourceServer) -> tuple[list[Json], str]:
    """What a server has, or why that is not known: one that fails does not hide the others."""
    try:
        return await server.resources(), ""
    except ToolError as flaw:
        return [], str(flaw)


class ReadInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    server: Annotated[str, Meta(description="The server's name")]
    uri: Annotated[str, Meta(description="The resource's address, as ListMcpResourcesTool gives it")]


class ReadMcpResource:
    name: ClassVar[str] = "ReadMcpResourceTool"
    reads_only: ClassVar[bool] = True
    input: ClassVar[type[Struct]] = ReadInput
    description: ClassVar[str] = "Reads one resource of an MCP server."

    async def run(self, call: ReadInput, context: Context, reach: Reach) -> Result:
        contents = await server(call.server, context).read(call.uri)
        return Result(content=text_of(contents), detail={"contents": contents})


def server(name: str, context: Context) -> ResourceServer:
    """Raises ToolError."""
    if name not in context.resources:
        known = ", ".join(sorted(context.resources)) or "none"
        raise ToolError(f"There is no MCP server {name!r} with resources. Servers with resources: {known}.")
    return context.resources[name]


def text_of(found: list[Json]) -> str:
    return msgspec.json.encode(found).decode()
