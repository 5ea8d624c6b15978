"""Hold a conversation: one turn per prompt, an interrupt, and a prompt sent during a turn.

Prints:
    first: One moment.
    second: Here I am.
    the long one was interrupted: True
    sent while another ran: And that is all. completed
"""

import asyncio

from parley import AssistantMessage, Client, Options

SLEEP = 'call Bash {"command": "sleep 30"}'
NAP = 'call Bash {"command": "sleep 0.5"}\nsay Awake.'


async def main() -> None:
    async with Client(Options(model="offline", allowed_tools=["Bash"])) as client:
        first = await client.ask("say One moment.")
        print("first:", await first.text())
        second = await client.ask("say Here I am.")  # sent after the first has finished, so it gets its own turn
        print("second:", await second.text())

        long = await client.ask(SLEEP)
        async for message in long:
            if isinstance(message, AssistantMessage):  # the model has called Bash
                await client.interrupt()
        print("the long one was interrupted:", long.result is not None and long.result.is_error)

        nap = await client.ask(NAP)
        await nap.until("started")
        receipt = await client.send("say And that is all.", priority="later")
        print("sent while another ran:", await receipt.text(), receipt.state)


asyncio.run(main())
