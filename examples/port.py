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
                cost = message.total_cost_usd  # None if the price of the model is not known
                print("Cost: unknown" if cost is None else f"Cost: ${cost:.4f}")


asyncio.run(main())
