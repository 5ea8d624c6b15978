"""Agents in files of the project: they are there when the settings of the project are asked for.

Prints:
    the agent of the file is there: True
    Claude: Hello.
    messages: ['SystemMessage', 'AssistantMessage', 'ResultMessage']
"""

import asyncio

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ClaudeSDKClient, SystemMessage, TextBlock


async def main() -> None:
    kinds = []
    async with ClaudeSDKClient(ClaudeAgentOptions(setting_sources=["project"])) as client:
        await client.query("Say hello")
        async for message in client.receive_response():
            kinds.append(type(message).__name__)
            if isinstance(message, SystemMessage) and message.subtype == "init":
                print("the agent of the file is there:", "doc-writer" in message.data["agents"])
            elif isinstance(message, AssistantMessage):
                for block in message.content:
                    if isinstance(block, TextBlock):
                        print(f"Claude: {block.text}")
    print("messages:", kinds)


asyncio.run(main())
