"""Hooks: refuse a command, add to a prompt, look at a result, decide with reasons, stop everything.

Prints:
    == PreToolUse
    blocked: ./foo.sh --help
    result: error True
    allowed: ./foo.txt
    Claude: Tried both.
    == UserPromptSubmit
    Claude: Your favourite colour is blue.
    == PostToolUse
    saw an error of Bash
    Claude: That did not work.
    == decisions with reasons
    denied: Write of important_config.txt
    allowed: Write of regular_file.txt
    Claude: One of two was written.
    written: ['regular_file.txt']
    == stop
    stopping after: a critical thing
    result: success, says nothing: True
"""

import asyncio
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookContext,
    HookInput,
    HookJSONOutput,
    HookMatcher,
    ResultMessage,
    TextBlock,
    ToolResultBlock,
    UserMessage,
)


def show(message: Any) -> None:
    if isinstance(message, AssistantMessage):
        for block in message.content:
            if isinstance(block, TextBlock):
                print(f"Claude: {block.text}")


async def check_command(input_data: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
    command = input_data["tool_input"].get("command", "")
    if "foo.sh" in command:
        print("blocked:", command)
        return {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": "the command has foo.sh in it",
            }
        }
    print("allowed:", command.split()[-1])
    return {}


async def add_context(input_data: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
    return {
        "hookSpecificOutput": {
            "hookEventName": "UserPromptSubmit",
            "additionalContext": "The favourite colour is blue.",
        }
    }


async def review(input_data: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
    print("saw an error of", input_data["tool_name"])
    return {
        "systemMessage": "The command failed",
        "hookSpecificOutput": {"hookEventName": "PostToolUseFailure", "additionalContext": "Try something else."},
    }


async def strict(input_data: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
    name = Path(input_data["tool_input"]["file_path"]).name
    decision = "deny" if "important" in name else "allow"
    print({"deny": "denied", "allow": "allowed"}[decision] + ":", input_data["tool_name"], "of", name)
    return {
        "reason": "by the rules of the house",
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": decision,
            "permissionDecisionReason": "by the rules of the house",
        },
    }


async def stop(input_data: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
    print("stopping after:", str(input_data["tool_response"]["stdout"]).strip())
    return {"continue_": False, "stopReason": "something critical was found"}


async def run(title: str, prompt: str, **options: Any) -> None:
    print("==", title)
    async with ClaudeSDKClient(ClaudeAgentOptions(**options)) as client:
        await client.query(prompt)
        async for message in client.receive_response():
            show(message)
            if isinstance(message, UserMessage) and isinstance(message.content, list) and title == "PreToolUse":
                for block in message.content:
                    if isinstance(block, ToolResultBlock) and "foo.sh" in str(block.content):
                        print("result: error", block.is_error)
            if isinstance(message, ResultMessage) and title == "stop":
                print(f"result: {message.subtype}, says nothing: {not message.result}")


async def main() -> None:
    await run(
        "PreToolUse",
        "Run both commands",
        allowed_tools=["Bash"],
        hooks={"PreToolUse": [HookMatcher(matcher="Bash", hooks=[check_command])]},
    )
    await run(
        "UserPromptSubmit",
        "What is my favourite colour?",
        hooks={"UserPromptSubmit": [HookMatcher(matcher=None, hooks=[add_context])]},
    )
    await run(
        "PostToolUse",
        "List a folder that is not there",
        allowed_tools=["Bash"],
        hooks={"PostToolUseFailure": [HookMatcher(matcher="Bash", hooks=[review])]},
    )
    await run(
        "decisions with reasons",
        "Write two files",
        allowed_tools=["Write", "Bash"],
        hooks={"PreToolUse": [HookMatcher(matcher="Write", hooks=[strict])]},
    )
    print("written:", sorted(path.name for path in Path.cwd().glob("*.txt") if path.name != "foo.txt"))
    await run(
        "stop",
        "Find something critical",
        allowed_tools=["Bash"],
        hooks={"PostToolUse": [HookMatcher(matcher="Bash", hooks=[stop])]},
    )


asyncio.run(main())
