"""Use hooks to decide on each tool call before it runs and to read its result.

Prints:
    before Bash: echo hello
    after Bash: hello
    before Bash: cat secrets.txt
    the model received: secrets are off limits
"""

import asyncio

from parley import (
    Client,
    HookContext,
    HookJSONOutput,
    HookMatcher,
    Options,
    PostToolUseHookInput,
    PreToolUseHookInput,
    ToolResultBlock,
    UserMessage,
)

PROMPT = """call Bash {"command": "echo hello"}
call Bash {"command": "cat secrets.txt"}
say Done."""


async def before(input: PreToolUseHookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
    command = input["tool_input"]["command"]
    print("before Bash:", command)
    if "secrets" in command:
        return {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": "secrets are off limits",
            }
        }
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}


async def after(input: PostToolUseHookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
    print("after Bash:", input["tool_response"]["stdout"].strip())
    return {}


async def main() -> None:
    options = Options(
        model="offline",
        hooks={
            "PreToolUse": [HookMatcher(matcher="Bash", hooks=[before])],
            "PostToolUse": [HookMatcher(matcher="Bash", hooks=[after])],
        },
    )
    denials = []
    async with Client(options) as client:
        async for message in await client.ask(PROMPT):
            if isinstance(message, UserMessage) and not isinstance(message.content, str):
                denials += [block for block in message.content if isinstance(block, ToolResultBlock) and block.is_error]
    for block in denials:
        print("the model received:", str(block.content).rpartition(": ")[2])


asyncio.run(main())
