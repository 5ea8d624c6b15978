"""Use hooks to decide on each tool call before it runs and to read its result.

Prints:
    before Bash: echo hello
    after Bash: hello
    before Bash: cat secrets.txt
    the model received: secrets are off limits
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
    decision = {"permissionDecision": "allow"}
    if "secrets" in command:
        decision = {"permissionDecision": "deny", "permissionDecisionReason": "secrets are off limits"}
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}


async def after(input: Any, tool_use_id: str | None, context: HookContext) -> dict[str, Any]:
    print("after Bash:", input["tool_response"]["stdout"].strip())
    return {}


async def main() -> None:
    hooks = {
        "PreToolUse": [HookMatcher(matcher="Bash", hooks=[before])],
        "PostToolUse": [HookMatcher(matcher="Bash", hooks=[after])],
    }
    denials = []
    async with Client(Options(model="offline", hooks=hooks)) as client:
        async for message in await client.ask(PROMPT):
            if isinstance(message, UserMessage) and not isinstance(message.content, str):
                denials += [block for block in message.content if isinstance(block, ToolResultBlock) and block.is_error]
    for block in denials:
        print("the model received:", str(block.content).rpartition(": ")[2])


asyncio.run(main())
