"""A first program: a plain question, one with options, one whose answer needs tools.

Prints:
    == a plain question
    Claude: 2 + 2 equals 4.
    == with options
    Claude: Python is a programming language.
    == with tools
    Claude: I created the file.
    cost is known: True
    hello.txt: Hello, World!
"""

from pathlib import Path
from typing import Any

import anyio
from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ResultMessage, TextBlock, query


def show(message: Any) -> None:
    if isinstance(message, AssistantMessage):
        for block in message.content:
            if isinstance(block, TextBlock):
                print(f"Claude: {block.text}")


async def plain() -> None:
    print("== a plain question")
    async for message in query(prompt="What is 2 + 2?"):
        show(message)


async def with_options() -> None:
    print("== with options")
    options = ClaudeAgentOptions(system_prompt="Explain things simply.", max_turns=1)
    async for message in query(prompt="Explain what Python is in one sentence.", options=options):
        show(message)


async def with_tools() -> None:
    print("== with tools")
    options = ClaudeAgentOptions(allowed_tools=["Read", "Write"], system_prompt="You handle files.")
    async for message in query(prompt="Create a file called hello.txt with a greeting in it", options=options):
        show(message)
        if isinstance(message, ResultMessage):
            print("cost is known:", (message.total_cost_usd or 0) > 0)


async def main() -> None:
    await plain()
    await with_options()
    await with_tools()


anyio.run(main)
print("hello.txt:", Path("hello.txt").read_text())
