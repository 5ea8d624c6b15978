"""WaitForMcpServers: waits until MCP servers that are still connecting have connected or failed."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.tools.base import Context, ToolOutput
from parley.workspace.base import Scope

MAX_SECONDS = 60.0
NOTHING_PENDING = "No MCP server is still connecting."


class WaitForServersInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    servers: Annotated[list[str] | None, Meta(description="Wait only for these servers; by default for all")] = None


class WaitForMcpServers:
    name: ClassVar[str] = "WaitForMcpServers"
    reads_only: ClassVar[bool] = True
    input: ClassVar[type[Struct]] = WaitForServersInput
    description: ClassVar[str] = (
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
