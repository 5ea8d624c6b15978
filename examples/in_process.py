"""The engine in your own process: the same messages without a child, on asyncio and, where it is installed, on trio.

Prints:
    asyncio: Hello. (no process of its own: True)
    trio: Hello. (no process of its own: True)
"""

from importlib.util import find_spec

import anyio

from parley import Client, Options


async def main(loop: str) -> None:
    async with Client(Options(model="offline", engine="local")) as client:
        text = await (await client.ask("say Hello.")).text()
        print(f"{loop}: {text} (no process of its own: {client.pid is None})")


for loop in ["asyncio", *(["trio"] if find_spec("trio") else [])]:
    anyio.run(main, loop, backend=loop)
