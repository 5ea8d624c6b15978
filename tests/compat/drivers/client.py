"""`ClaudeSDKClient`: one step after the other with one engine."""

from __future__ import annotations

import asyncio
from typing import Any

from claude_agent_sdk import AssistantMessage, ClaudeSDKClient, ResultMessage, StreamEvent, UserMessage
from telling import TASK, options, tell, tell_error

try:
    from claude_agent_sdk import TaskNotificationMessage, TaskStartedMessage
except ImportError:  # the old release does not have them
    TaskNotificationMessage = TaskStartedMessage = type(None)


async def ask(client: Any, prompt: str) -> None:
    await client.query(prompt)
    async for message in client.receive_response():
        tell("message", message)


async def ask_with_uuid(client: Any, prompt: str, uuid: str) -> None:
    async def one_prompt() -> Any:
        yield {"type": "user", "uuid": uuid, "message": {"role": "user", "content": prompt}, "parent_tool_use_id": None}

    await client.query(one_prompt())
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


async def set_permission_mode(client: Any, mode: str) -> None:
    await client.set_permission_mode(mode)


async def ask_and_rewind(client: Any, prompt: str) -> None:
    """After the turn, rewind the files to the state before it."""
    checkpoint = None
    await client.query(prompt)
    async for message in client.receive_response():
        tell("message", message)
        if isinstance(message, UserMessage) and checkpoint is None:
            checkpoint = message.uuid
    tell("rewound", await client.rewind_files(str(checkpoint)))


async def ask_and_stop_the_task(client: Any, prompt: str) -> None:
    """Stop the first task that starts. Its end may be told before or after the result of the turn."""
    await client.query(prompt)
    awaited = {ResultMessage, TaskNotificationMessage}
    async for message in client.receive_messages():
        tell("message", message)
        if isinstance(message, TaskStartedMessage):
            await client.stop_task(message.task_id)
        awaited.discard(type(message))
        if not awaited:
            break


async def mcp_status(client: Any) -> None:
    """The servers, when each has connected or failed: a turn does not wait for them for ever."""
    while True:
        status = await client.get_mcp_status()
        if all(server["status"] != "pending" for server in status["mcpServers"]):
            break
        await asyncio.sleep(0.02)
    tell("mcp_status", status)


async def toggle_mcp_server(client: Any, name: str, enabled: bool) -> None:
    await client.toggle_mcp_server(name, enabled)


async def reconnect_mcp_server(client: Any, name: str) -> None:
    await client.reconnect_mcp_server(name)


async def context_usage(client: Any) -> None:
    tell("context_usage", await client.get_context_usage())


STEPS: dict[str, Any] = {
    step.__name__: step
    for step in (
        ask,
        ask_and_interrupt,
        ask_and_rewind,
        ask_and_stop_the_task,
        ask_with_uuid,
        context_usage,
        mcp_status,
        reconnect_mcp_server,
        server_info,
        set_model,
        set_permission_mode,
        toggle_mcp_server,
    )
}


async def main() -> None:
    try:
        async with ClaudeSDKClient(options()) as client:
            for name, *arguments in TASK["steps"]:
                await STEPS[name](client, *arguments)
    except Exception as exc:
        tell_error(exc)


asyncio.run(main())
