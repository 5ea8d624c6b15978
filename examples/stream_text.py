"""Print text while the model writes it.

Prints:
    The quick brown fox jumps over the lazy dog, and then the dog jumps over the fox.
    It came in 3 pieces.
"""

import asyncio

from parley import Options, StreamEvent, query

PROMPT = "say The quick brown fox jumps over the lazy dog, and then the dog jumps over the fox."


async def main() -> None:
    pieces = 0
    async for message in query(prompt=PROMPT, options=Options(model="offline", include_partial_messages=True)):
        if isinstance(message, StreamEvent) and message.event["type"] == "content_block_delta":
            print(message.event["delta"].get("text", ""), end="", flush=True)
            pieces += 1
    print(f"\nIt came in {pieces} pieces.")


asyncio.run(main())
