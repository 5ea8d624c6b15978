"""Sessions in a store of the program's own: copied there as they grow, listed, and gone on with from there.

Prints:
    Claude: Noted.
    kept: 1 session
    what was said: user, assistant
    Claude: You told me a number.
    the same session: True
    what was said: user, assistant, user, assistant
"""

import asyncio
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    InMemorySessionStore,
    ResultMessage,
    TextBlock,
    get_session_messages_from_store,
    list_sessions_from_store,
    query,
)


async def ask(prompt: str, **options: Any) -> str:
    """One prompt in an engine of its own; the id of its session."""
    found = ""
    async for message in query(prompt=prompt, options=ClaudeAgentOptions(**options)):
        if isinstance(message, AssistantMessage):
            for block in message.content:
                if isinstance(block, TextBlock):
                    print(f"Claude: {block.text}")
        elif isinstance(message, ResultMessage):
            found = message.session_id
    return found


async def show(store: Any, session_id: str) -> None:
    messages = await get_session_messages_from_store(store, session_id)
    print("what was said:", ", ".join(message.type for message in messages))


async def main() -> None:
    store = InMemorySessionStore()
    first = await ask("Remember the number 7", session_store=store)
    sessions = await list_sessions_from_store(store)
    print("kept:", len(sessions), "session")
    await show(store, first)
    again = await ask("What did I tell you?", session_store=store, resume=first)
    print("the same session:", again == first)
    await show(store, first)


asyncio.run(main())
