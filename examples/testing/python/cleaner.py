"""An application: an agent that cleans a project. It may delete the directory `build`, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from parley import ClaudeSDKError, Options, PermissionResultAllow, PermissionResultDeny, ResultMessage, query

Decision = PermissionResultAllow | PermissionResultDeny


async def decide(tool: str, input: dict[str, Any], context: Any) -> Decision:
    """What the agent may do."""
    if tool == "Bash" and input.get("command") == "rm -r build":
        return PermissionResultAllow()
    return PermissionResultDeny(message="only the build directory may be deleted")


async def clean(options: Options[Any]) -> tuple[str, list[Any]]:
    """Clean the project: what the agent answers, and all messages."""
    messages = []
    try:
        async for message in query(prompt="Clean the project.", options=replace(options, can_use_tool=decide)):
            messages.append(message)  # noqa: PERF401 - those before an error are kept
    except ClaudeSDKError as exc:
        return f"failed: {exc}", messages
    results = [message for message in messages if isinstance(message, ResultMessage)]
    return (results[-1].result or "no answer") if results else "no answer", messages
