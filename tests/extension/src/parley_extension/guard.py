"""A hook: no command may contain the word `forbidden`."""

from __future__ import annotations

from typing import Any

from parley.hooks.extension import PackageHook


async def check(input: dict[str, Any]) -> dict[str, Any] | None:
    command = str(input["tool_input"].get("command", ""))
    if "raise" in command:
        raise RuntimeError("the guard is confused")
    if "forbidden" not in command:
        return None
    return {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "this word is forbidden"}}


HOOK = PackageHook(event="PreToolUse", matcher="Bash", run=check)
