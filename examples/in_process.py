"""Run the engine in your process: the same messages without a child process, on asyncio and, if installed, trio.

Prints:
    asyncio: Hello. (no child process: True)
    trio: Hello. (no child process: True)
"""

from importlib.util import find_spec

import anyio

from parley import Client, Options


async def main(loop: str) -> None:
    async with Client(Options(model="offline", engine="local")) as client:
        result = await client.run("say Hello.")
        print(f"{loop}: {result.text} (no child process: {client.pid is None})")


for loop in ["asyncio", *(["trio"] if find_spec("trio") else [])]:
    anyio.run(main, loop, backend=loop)
