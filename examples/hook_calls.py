"""Hooks: a say before every call of a tool, and a look at what came of it.

Prints:
    before Bash: echo hello
    after Bash: hello
    before Bash: cat secrets.txt
    the model was told: secrets stay where they are
"""

import asyncio
from typing import Any

from parley import Client, HookContext, HookMatcher, Options, ToolResultBlock, UserMessage

PROMPT = """call Bash {"command": "echo hello"}
call Bash {"command": "cat secrets.txt"}
say Done."""


async def before(input: Any, tool_use_id: str | None, context: HookContext) -> dict[str, Any]:
    command = input["tool_input"]["command"]
    print("before Bash:", command)
    verdict = {"permissionDecision": "allow"}
    if "secrets" in command:
        verdict = {"permissionDecision": "deny", "permissionDecisionReason": "secrets stay where they are"}
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **verdict}}


async def after(input: Any, tool_use_id: str | None, context: HookContext) -> dict[str, Any]:
    print("after Bash:", input["tool_response"]["stdout"].strip())
    return {}


async def main() -> None:
    hooks = {
        "PreToolUse": [HookMatcher(matcher="Bash", hooks=[before])],
        "PostToolUse": [HookMatcher(matcher="Bash", hooks=[after])],
    }
    refusals = []
    async with Client(Options(model="offline", hooks=hooks)) as client:
        async for message in await client.ask(PROMPT):
            if isinstance(message, UserMessage) and not isinstance(message.content, str):
                refusals += [
                    block for block in message.content if isinstance(block, ToolResultBlock) and block.is_error
                ]
    for block in refusals:
        print("the model was told:", str(block.content).rpartition(": ")[2])


asyncio.run(main())
