"""Resume a session in another process, or continue in a fork of it.

Prints:
    the same session: True
    the fork has its own id: True
    continued the latest session of this folder: True
"""

import asyncio
import tempfile
from typing import Any

from parley import Options, run


async def ask(prompt: str, **options: Any) -> str:
    """Send one prompt to a new engine and return the session id."""
    return (await run(prompt, Options(model="offline", **options))).session_id


async def main(folder: str) -> None:
    first = await ask("say Remember me.", cwd=folder)
    again = await ask("say I do.", cwd=folder, resume=first)
    print("the same session:", again == first)
    fork = await ask("say Elsewhere.", cwd=folder, resume=first, fork_session=True)
    print("the fork has its own id:", fork != first)
    latest = await ask("say Where were we?", cwd=folder, continue_conversation=True)
    print("continued the latest session of this folder:", latest == fork)


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(folder))
