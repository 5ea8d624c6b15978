"""A calculator as a server in the program: tools of the model that are functions here.

Prints:
    == List your tools
    Claude: I can add, divide and take roots.
    == 15 + 27
    used: mcp__calc__add
    gave: 15.0 + 27.0 = 42.0
    Claude: 42.
    == 100 / 0
    used: mcp__calc__divide
    gave: Error: division by zero
    Claude: That cannot be divided.
    == the root of 144
    used: mcp__calc__sqrt
    gave: The root of 144 is 12.0
    Claude: 12.
    the servers: [('calc', 'connected')]
"""

import asyncio
import math
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    TextBlock,
    ToolAnnotations,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    create_sdk_mcp_server,
    tool,
)


def text(content: str, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": content}], **({"is_error": True} if is_error else {})}


@tool("add", "Add two numbers", {"a": float, "b": float}, annotations=ToolAnnotations(readOnlyHint=True))
async def add(args: dict[str, Any]) -> dict[str, Any]:
    return text(f"{float(args['a'])} + {float(args['b'])} = {float(args['a'] + args['b'])}")


@tool("divide", "Divide one number by another", {"a": float, "b": float})
async def divide(args: dict[str, Any]) -> dict[str, Any]:
    if args["b"] == 0:
        return text("Error: division by zero", is_error=True)
    return text(f"{args['a']} / {args['b']} = {args['a'] / args['b']}")


@tool("sqrt", "Take a square root", {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]})
async def sqrt(args: dict[str, Any]) -> dict[str, Any]:
    return text(f"The root of {args['n']} is {math.sqrt(args['n'])}")


def show(message: Any) -> None:
    if isinstance(message, AssistantMessage):
        for block in message.content:
            if isinstance(block, TextBlock):
                print(f"Claude: {block.text}")
            elif isinstance(block, ToolUseBlock):
                print("used:", block.name)
    elif isinstance(message, UserMessage) and isinstance(message.content, list):
        for block in message.content:
            if isinstance(block, ToolResultBlock):
                parts = block.content if isinstance(block.content, list) else [{"text": block.content}]
                print("gave:", " ".join(str(part["text"]) for part in parts))


async def main() -> None:
    calculator = create_sdk_mcp_server(name="calculator", version="2.0.0", tools=[add, divide, sqrt])
    options = ClaudeAgentOptions(
        mcp_servers={"calc": calculator},
        allowed_tools=["mcp__calc__add", "mcp__calc__divide", "mcp__calc__sqrt"],
    )
    async with ClaudeSDKClient(options=options) as client:
        for prompt in ("List your tools", "15 + 27", "100 / 0", "the root of 144"):
            print("==", prompt)
            await client.query(prompt)
            async for message in client.receive_response():
                show(message)
        status = await client.get_mcp_status()
        print("the servers:", [(one["name"], one["status"]) for one in status["mcpServers"]])


asyncio.run(main())
