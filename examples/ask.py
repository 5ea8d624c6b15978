"""Send one prompt and print the answer.

Prints:
    2 + 2 is 4.
    It took 1 model call.
"""

import asyncio

from parley import AssistantMessage, Options, ResultMessage, query


async def main() -> None:
    options = Options(model="offline")
    async for message in query(prompt="say 2 + 2 is 4.", options=options):
        if isinstance(message, AssistantMessage):
            print(message.text)
        elif isinstance(message, ResultMessage):
            print(f"It took {message.num_turns} model call.")


asyncio.run(main())
