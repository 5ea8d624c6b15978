"""A hook or `can_use_tool`, asked about many calls at once, by `query()` or by a client, for each of the cells.

Every callback waits until all of them have come; then they answer, the last one first.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

from claude_agent_sdk import ClaudeSDKClient, HookMatcher, PermissionResultAllow, ResultMessage, query
from telling import TASK, one_prompt, options, tell, tell_error


class Gate:
    """Lets all through, the last first, once all have come."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._waiting: list[asyncio.Event] = []
        self.first = asyncio.Event()

    async def passed(self, tool_use_id: str) -> None:
        tell("asked", tool_use_id)
        mine = asyncio.Event()
        self._waiting.append(mine)
        self.first.set()
        if len(self._waiting) == self._expected:
            self._waiting[-1].set()
        await mine.wait()
        tell("answered", tool_use_id)
        self._waiting.pop()
        if self._waiting:
            self._waiting[-1].set()


def chosen(kind: str, gate: Gate) -> dict[str, Any]:
    """The options with a callback of this kind."""

    async def hook(input_data: Any, tool_use_id: str | None, context: Any) -> Any:
        await gate.passed(str(tool_use_id))
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}

    async def can_use_tool(tool_name: str, tool_input: Any, context: Any) -> Any:
        await gate.passed(str(tool_input["file_path"]))
        return PermissionResultAllow()

    if kind == "hook":
        return {"hooks": {"PreToolUse": [HookMatcher(matcher="Read", hooks=[hook])]}}
    return {"can_use_tool": can_use_tool}


async def until_asked(gate: Gate) -> AsyncIterator[dict[str, Any]]:
    """Open until the first callback comes: the input ends while callbacks are pending."""
    async for prompt in one_prompt("go"):
        yield prompt
    await gate.first.wait()


def prompted(form: str, gate: Gate) -> Any:
    if form == "string":
        return "go"
    return one_prompt([{"type": "text", "text": "go"}]) if form == "list" else until_asked(gate)


async def play(form: str, kind: str) -> None:
    gate = Gate(TASK["calls"])
    prompt, made = prompted(form, gate), dataclasses.replace(options(), **chosen(kind, gate))
    if TASK["door"] == "query":
        async for message in query(prompt=prompt, options=made):
            tell_end(message)
        return
    async with ClaudeSDKClient(made) as client:
        await client.query(prompt)
        async for message in client.receive_response():
            tell_end(message)


def tell_end(message: Any) -> None:
    if isinstance(message, ResultMessage):
        tell("message", message)


async def main() -> None:
    try:
        for form, kind in TASK["cells"]:
            await play(form, kind)
    except Exception as exc:
        tell_error(exc)


asyncio.run(main())
