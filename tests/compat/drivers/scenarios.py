"""The official Python SDK with a fake engine for each scenario: what came of each."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    TextBlock,
    create_sdk_mcp_server,
    query,
    tool,
)
from telling import TASK, one_prompt, options, tell, tell_error


@tool("add", "Adds.", {"a": int, "b": int})  # type: ignore[untyped-decorator]  # not installed here
async def add(given: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": str(given["a"] + given["b"])}]}


async def decide(name: str, given: dict[str, Any], context: Any) -> Any:
    tell("asked", [name, given])
    return PermissionResultDeny(message="no") if "/" in str(given) else PermissionResultAllow()


async def hook(given: Any, tool_use_id: str | None, context: Any) -> Any:
    tell("hook", [given["hook_event_name"], given.get("tool_name")])
    return {}


async def play(engine: str, **more: Any) -> None:
    hooks: Any = {name: [HookMatcher(matcher=None, hooks=[hook])] for name in ("UserPromptSubmit", "PreToolUse")}
    own = {"own": create_sdk_mcp_server("own", tools=[add])}
    made = dataclasses.replace(options(), cli_path=engine, can_use_tool=decide, hooks=hooks, mcp_servers=own, **more)
    try:
        async for message in query(prompt=one_prompt("Clean the project."), options=made):
            if isinstance(message, AssistantMessage):
                for block in message.content:
                    if isinstance(block, TextBlock):
                        tell("text", block.text[:40])
            elif isinstance(message, ResultMessage):
                tell("result", [message.subtype, message.result, message.errors])
    except Exception as exc:
        tell_error(exc)


async def main() -> None:
    for name, engine, more in TASK["scenarios"]:
        tell("scenario", name)
        await play(engine, **more)


asyncio.run(main())
