"""`ClaudeSDKClient`: one step after the other with one engine."""

from __future__ import annotations

import asyncio
from typing import Any

from claude_agent_sdk import AssistantMessage, ClaudeSDKClient, StreamEvent
from telling import TASK, options, tell, tell_error


async def ask(client: Any, prompt: str) -> None:
    await client.query(prompt)
    async for message in client.receive_response():
        tell("message", message)


async def ask_and_interrupt(client: Any, prompt: str) -> None:
    """Interrupt as soon as the first text is seen."""
    await client.query(prompt)
    interrupted = False
    async for message in client.receive_response():
        tell("message", message)
        if not interrupted and shows_text(message):
            interrupted = True
            await client.interrupt()


def shows_text(message: Any) -> bool:
    is_delta = isinstance(message, StreamEvent) and message.event["type"] == "content_block_delta"
    return is_delta or isinstance(message, AssistantMessage)


async def set_model(client: Any, name: str | None) -> None:
    await client.set_model(name)


async def server_info(client: Any) -> None:
    tell("server_info", await client.get_server_info())


STEPS = {step.__name__: step for step in (ask, ask_and_interrupt, set_model, server_info)}


async def main() -> None:
    try:
        async with ClaudeSDKClient(options()) as client:
            for name, *arguments in TASK["steps"]:
                await STEPS[name](client, *arguments)
    except Exception as exc:
        tell_error(exc)


asyncio.run(main())
