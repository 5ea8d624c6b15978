"""The client on trio.

Prints:
    Claude: 4
    Claude: 8
"""

import trio
from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ClaudeSDKClient, TextBlock


async def main() -> None:
    async with ClaudeSDKClient(ClaudeAgentOptions()) as client:
        for prompt in ("What is 2 + 2?", "And times two?"):
            await client.query(prompt)
            async for message in client.receive_response():
                if isinstance(message, AssistantMessage):
                    for block in message.content:
                        if isinstance(block, TextBlock):
                            print(f"Claude: {block.text}")


trio.run(main)
