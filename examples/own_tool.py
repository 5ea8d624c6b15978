"""Give the model your own functions as tools. They run in your process.

A function with type hints is enough; the decorator of the official SDK works too.

Prints:
    add was called with 2 and 3
    the tools returned: 5.0 | HELLO
    still a function: 3
"""

import asyncio
from typing import Annotated, Any

from parley import Options, ToolResultBlock, UserMessage, query, tool


@tool
def add(a: float, b: Annotated[float, "the number to add"]) -> float:
    """Add two numbers."""
    if a > 1:
        print(f"add was called with {a:g} and {b:g}")
    return a + b


@tool("shout", "Convert a text to upper case.", {"text": str})
async def shout(args: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": args["text"].upper()}]}


PROMPT = """call mcp__tools__add {"a": 2, "b": 3}
call mcp__tools__shout {"text": "hello"}
say Done."""


async def main() -> None:
    options = Options(model="offline", tools=["Read", add, shout])  # the model has Read and these two
    results = []
    async for message in query(prompt=PROMPT, options=options):
        if isinstance(message, UserMessage) and not isinstance(message.content, str):
            results += [block.content for block in message.content if isinstance(block, ToolResultBlock)]
    texts = [part["text"] for content in results if isinstance(content, list) for part in content]
    print("the tools returned:", " | ".join(texts))
    print(f"still a function: {add(1, 2):g}")


asyncio.run(main())
