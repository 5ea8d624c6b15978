"""Hold a conversation: one turn per prompt, an interrupt, and a prompt that joins a turn.

Prints:
    first: One moment.
    asked together: ['one', 'two', 'three']
    the long one was interrupted: aborted_tools
    joined: True
"""

import asyncio

from parley import AssistantMessage, Client, Options, ResultError

SLEEP = 'call Bash {"command": "sleep 30"}'
NAP = 'call Bash {"command": "sleep 0.5"}\nsay Awake.'


async def main() -> None:
    async with Client(Options(model="offline", allowed_tools=["Bash"])) as client:
        first = await client.run("say One moment.")
        print("first:", first.text)

        prompts = ["say one", "say two", "say three"]
        results = await asyncio.gather(*(client.run(prompt) for prompt in prompts))
        print("asked together:", [result.text for result in results])

        turn = await client.ask(SLEEP)
        async for message in turn:
            if isinstance(message, AssistantMessage):  # the model has called Bash
                await client.interrupt()
        try:
            await turn.text()
        except ResultError as exc:
            print("the long one was interrupted:", exc.terminal_reason)

        nap = await client.ask(NAP)
        await nap.until("started")
        joining = await client.ask("say And that is all.", join=True)
        await joining
        print("joined:", joining.result is nap.result)


asyncio.run(main())
