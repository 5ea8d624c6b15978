"""Approve tool calls: `can_use_tool` is called for every call that no rule decides.

Prints:
    asked about Write of notes.txt: yes, but shorter
    asked about Bash of rm -rf /: no
    denied: Not on my machine.
    notes.txt says: milk
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from parley import (
    Client,
    Options,
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
    ToolResultBlock,
    UserMessage,
)

PROMPT = """call Write {"file_path": "notes.txt", "content": "milk and honey"}
call Bash {"command": "rm -rf /"}
say Done."""


async def decide(name: str, input: dict[str, Any], context: ToolPermissionContext) -> PermissionResult:
    if name == "Write":
        print(f"asked about Write of {Path(input['file_path']).name}: yes, but shorter")
        return PermissionResultAllow(updated_input={**input, "content": "milk"})
    print(f"asked about {name} of {input['command']}: no")
    return PermissionResultDeny(message="Not on my machine.")


async def main(folder: str) -> None:
    async with Client(Options(model="offline", cwd=folder, can_use_tool=decide)) as client:
        results = [message async for message in await client.ask(PROMPT) if isinstance(message, UserMessage)]
    for message in results:
        for block in message.content:
            if isinstance(block, ToolResultBlock) and block.is_error:
                print("denied:", block.content)


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(folder))
    print("notes.txt says:", Path(folder, "notes.txt").read_text())
