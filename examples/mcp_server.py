"""Use an MCP server that runs as a process. (Started with `serve`, this file is that server.)

Prints:
    library is connected with the tools find
    the server returned: {"result":"The Odyssey"}
"""

import asyncio
import sys

from parley import Client, McpServerConfig, Options, ToolResultBlock, UserMessage

PROMPT = """call mcp__library__find {"author": "Homer"}
say Done."""


async def main() -> None:
    servers: dict[str, McpServerConfig] = {
        # `required`: the first model call waits until the server is connected.
        "library": {"command": sys.executable, "args": [__file__, "serve"], "required": True}
    }
    options = Options(model="offline", mcp_servers=servers, allowed_tools=["mcp__library__find"])
    async with Client(options) as client:
        turn = await client.ask(PROMPT)
        found = [message async for message in turn if isinstance(message, UserMessage)]
        [status] = (await client.get_mcp_status())["mcpServers"]
        tools = ", ".join(one["name"] for one in status.get("tools", ()))
        print(status["name"], "is", status["status"], "with the tools", tools)
    for message in found:
        for block in message.content:
            if isinstance(block, ToolResultBlock):
                print("the server returned:", block.content)


def serve() -> None:
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("library", log_level="ERROR")

    @server.tool()
    def find(author: str) -> str:
        """A book of an author."""
        return {"Homer": "The Odyssey"}.get(author, "nothing")

    server.run()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else asyncio.run(main())
