"""Go on with a session later, in another process or on another day, or go on with a copy of it.

Prints:
    the same session: True
    a fork is another one: True
    the latest of this folder is gone on with: True
"""

import asyncio
import tempfile
from typing import Any

from parley import Client, Options


async def ask(prompt: str, **options: Any) -> str:
    """One prompt in an engine of its own; the id of its session."""
    async with Client(Options(model="offline", **options)) as client:
        await (await client.ask(prompt))
        return str(client.session_id)


async def main(folder: str) -> None:
    first = await ask("say Remember me.", cwd=folder)
    again = await ask("say I do.", cwd=folder, resume=first)
    print("the same session:", again == first)
    fork = await ask("say Elsewhere.", cwd=folder, resume=first, fork_session=True)
    print("a fork is another one:", fork != first)
    latest = await ask("say Where were we?", cwd=folder, continue_conversation=True)
    print("the latest of this folder is gone on with:", latest == fork)


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(folder))
