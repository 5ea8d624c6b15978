"""What the engine writes on stderr comes to a callback, line by line.

Prints:
    Claude: 4
    lines came: True
    all of them text: True
"""

import asyncio

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, TextBlock, query

lines: list[str] = []


async def main() -> None:
    options = ClaudeAgentOptions(stderr=lines.append, extra_args={"debug-to-stderr": None})
    async for message in query(prompt="What is 2 + 2?", options=options):
        if isinstance(message, AssistantMessage):
            for block in message.content:
                if isinstance(block, TextBlock):
                    print(f"Claude: {block.text}")
    print("lines came:", len(lines) > 0)
    print("all of them text:", all(isinstance(line, str) for line in lines))


asyncio.run(main())
