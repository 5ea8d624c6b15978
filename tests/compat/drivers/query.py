"""`query()`: one prompt, a text or a list of content blocks, to the end."""

from __future__ import annotations

import asyncio

from claude_agent_sdk import query
from telling import TASK, one_prompt, options, tell, tell_error


async def main() -> None:
    content = TASK["prompt"]
    prompt = content if isinstance(content, str) else one_prompt(content)
    try:
        async for message in query(prompt=prompt, options=options()):
            tell("message", message)
    except Exception as exc:
        tell_error(exc)


asyncio.run(main())
