"""A program for the official SDK. Only the import changed, from `claude_agent_sdk` to `parley`.

Prints:
    Claude: Hello.
    Cost: $0.0000
"""

import asyncio

from parley import AssistantMessage, ClaudeAgentOptions, ClaudeSDKClient, ResultMessage, TextBlock


async def main() -> None:
    async with ClaudeSDKClient(ClaudeAgentOptions(model="offline")) as client:
        await client.query("say Hello.")
        async for message in client.receive_response():
            if isinstance(message, AssistantMessage):
                for block in message.content:
                    if isinstance(block, TextBlock):
                        print(f"Claude: {block.text}")
            elif isinstance(message, ResultMessage):
                print(f"Cost: ${message.total_cost_usd:.4f}")


asyncio.run(main())
