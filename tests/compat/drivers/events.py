"""Hooks for every event of the SDK, which tell their input; `can_use_tool` allows everything
once the hooks of the request have fired."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any, get_args

from claude_agent_sdk import ClaudeSDKClient, HookMatcher, PermissionResultAllow
from claude_agent_sdk.types import HookEvent
from telling import TASK, options, tell, tell_error

AT_A_REQUEST = ("PermissionRequest", "Notification")
"""What fires while a permission request is open."""
seen = {event: asyncio.Event() for event in AT_A_REQUEST}


async def hook(input_data: Any, tool_use_id: str | None, context: Any) -> Any:
    tell("hook", dict(input_data))
    if input_data["hook_event_name"] in seen:
        seen[input_data["hook_event_name"]].set()
    return {}


async def can_use_tool(tool_name: str, tool_input: Any, context: Any) -> Any:
    tell("asked", tool_name)
    for event in seen.values():
        await event.wait()
    return PermissionResultAllow()


async def main() -> None:
    # A union of literals, each of one event.
    events = [event for literal in get_args(HookEvent) for event in get_args(literal) or (literal,)]
    tell("events", events)
    hooks: dict[Any, Any] = {event: [HookMatcher(hooks=[hook])] for event in events}
    try:
        made = dataclasses.replace(options(), hooks=hooks, can_use_tool=can_use_tool)
        async with ClaudeSDKClient(made) as client:
            for prompt in TASK["prompts"]:
                await client.query(prompt)
                async for message in client.receive_response():
                    tell("message", message)
    except Exception as exc:
        tell_error(exc)


asyncio.run(main())
