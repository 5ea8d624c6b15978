"""Decide about every call: reading is fine, writing goes elsewhere, dangerous commands do not run.

Prints:
    asked about Write, suggestions: True
    asked about Bash, suggestions: True
    asked about Bash, suggestions: True
    safe_output/hello.txt: print("hello")
    denied: 1 of 3
    Claude: Wrote and ran it.
    log: ['Write', 'Bash', 'Bash']
"""

import asyncio
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    TextBlock,
    ToolPermissionContext,
)

log: list[str] = []


async def decide(
    tool_name: str, input_data: dict[str, Any], context: ToolPermissionContext
) -> PermissionResultAllow | PermissionResultDeny:
    log.append(tool_name)
    print(f"asked about {tool_name}, suggestions: {bool(context.suggestions)}")
    if tool_name == "Write":
        name = Path(input_data["file_path"]).name
        return PermissionResultAllow(updated_input={**input_data, "file_path": f"./safe_output/{name}"})
    if "rm -rf" in input_data["command"]:
        return PermissionResultDeny(message="that is dangerous")
    return PermissionResultAllow()


async def main() -> None:
    options = ClaudeAgentOptions(can_use_tool=decide, permission_mode="default", cwd=".")
    async with ClaudeSDKClient(options) as client:
        await client.query("Write a small program, clean up and run it")
        async for message in client.receive_response():
            if isinstance(message, ResultMessage):
                print("safe_output/hello.txt:", Path("safe_output/hello.txt").read_text())
                print("denied:", len(message.permission_denials or []), "of", len(log))
                print("Claude:", message.result)
            elif isinstance(message, AssistantMessage):
                assert all(not isinstance(block, TextBlock) or block.text for block in message.content)
    print("log:", log)


asyncio.run(main())
