"""An MCP server with many tools, written with the official package: `many.py [count]`.

Each tool has a description and a schema of the usual length, so that their definitions together are large.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent, Tool

THINGS = ("invoice", "customer", "shipment", "ticket", "contract", "report", "schedule", "budget", "vehicle", "sensor")
VERBS = ("create", "read", "update", "delete", "search", "export", "import", "archive", "approve", "assign")


def describe(number: int) -> Tool:
    verb, thing = VERBS[number % 10], THINGS[number // 10 % 10]
    fields = {
        "id": {"type": "string", "description": f"The identifier of the {thing}, as the search tool gives it"},
        "note": {"type": "string", "description": "What to record about this step, in a sentence or two"},
        "options": {"type": "object", "description": "Further options, by name", "additionalProperties": True},
    }
    return Tool(
        name=f"{verb}_{thing}_{number}",
        description=f"{verb.capitalize()} a {thing} in department {number}. Returns what has changed, and its version.",
        input_schema={"type": "object", "properties": fields, "required": ["id"], "additionalProperties": False},
        _meta={"anthropic/alwaysLoad": True} if number == 7 and "always" in sys.argv else None,
    )


async def list_tools(context: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=[describe(number) for number in range(COUNT)])


async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
    arguments = params.arguments or {}
    return CallToolResult(content=[TextContent(type="text", text=f"{params.name}: {arguments.get('id')}")])


async def main() -> None:
    server = Server("many", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 250
asyncio.run(main())
