"""Which settings count: with none the project's command is not there, with the project's it is.

Prints:
    none: False
    user only: False
    user and project: True
"""

import asyncio
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, SystemMessage


async def run(title: str, sources: Any) -> None:
    async with ClaudeSDKClient(ClaudeAgentOptions(setting_sources=sources)) as client:
        await client.query("What is 2 + 2?")
        async for message in client.receive_response():
            if isinstance(message, SystemMessage) and message.subtype == "init":
                print(f"{title}:", "commit" in message.data["slash_commands"])


async def main() -> None:
    await run("none", [])
    await run("user only", ["user"])
    await run("user and project", ["user", "project"])


asyncio.run(main())
