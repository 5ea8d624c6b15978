"""A client with an MCP server in its own process: `bell` answers when all its calls are in, the last one first."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from claude_agent_sdk import ClaudeSDKClient, create_sdk_mcp_server, query, tool
from mcp.types import ToolAnnotations
from telling import TASK, one_prompt, options, tell, tell_error

COUNT: int = TASK["count"]
waiting: list[asyncio.Event] = []


@tool("bell", "Rings", {"number": int}, annotations=ToolAnnotations(read_only_hint=True))  # type: ignore[untyped-decorator]  # not installed here
async def bell(arguments: dict[str, Any]) -> dict[str, Any]:
    mine = asyncio.Event()
    waiting.append(mine)
    if len(waiting) == COUNT:
        waiting.pop().set()
    await mine.wait()
    tell("rang", arguments["number"])
    if waiting:
        waiting.pop().set()
    return {"content": [{"type": "text", "text": f"rang {arguments['number']}"}]}


@tool("boom", "Fails", {})  # type: ignore[untyped-decorator]  # not installed here
async def boom(arguments: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("the bell is cracked")


async def main() -> None:
    server = create_sdk_mcp_server("tower", tools=[bell, boom])
    wanted = dataclasses.replace(options(), mcp_servers={"tower": server}, allowed_tools=["mcp__tower"])
    try:
        if TASK["door"] == "client":
            async with ClaudeSDKClient(wanted) as client:
                await client.query("go")
                async for message in client.receive_response():
                    tell("message", message)
                if hasattr(client, "get_mcp_status"):
                    tell("status", await client.get_mcp_status())
        else:
            prompt = "go" if TASK["door"] == "string" else one_prompt("go")
            async for message in query(prompt=prompt, options=wanted):
                tell("message", message)
    except Exception as exc:
        tell_error(exc)


asyncio.run(main())
