"""Print text while the model writes it.

Prints:
    The quick brown fox jumps over the lazy dog, and then the dog jumps over the fox.
    It came in 3 pieces.
"""

import asyncio

from parley import Client, Options

PROMPT = "say The quick brown fox jumps over the lazy dog, and then the dog jumps over the fox."


async def main() -> None:
    pieces = 0
    async with Client(Options(model="offline", include_partial_messages=True)) as client:
        turn = await client.ask(PROMPT)
        async for text in turn.text_stream():
            print(text, end="", flush=True)
            pieces += 1
    print(f"\nIt came in {pieces} pieces.")


asyncio.run(main())
