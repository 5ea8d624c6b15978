"""A session with the `sandbox` option whose questions are answered as the task says."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from claude_agent_sdk import ClaudeSDKClient, PermissionResultAllow, PermissionResultDeny
from telling import TASK, options, tell, tell_error


async def can_use_tool(tool_name: str, tool_input: Any, context: Any) -> Any:
    tell("asked", [tool_name, tool_input])
    if TASK["answers"].get(tool_name, "deny") == "allow":
        return PermissionResultAllow()
    return PermissionResultDeny(message="denied by the test")


async def main() -> None:
    try:
        async with ClaudeSDKClient(dataclasses.replace(options(), can_use_tool=can_use_tool)) as client:
            await client.query("go")
            async for message in client.receive_response():
                tell("message", message)
    except Exception as exc:
        tell_error(exc)


asyncio.run(main())
