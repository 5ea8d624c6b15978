"""Which tools there are: a list, none, the preset.

Prints:
    a list: ['Glob', 'Grep', 'Read']
    none: []
    preset: many
"""

from typing import Any

import anyio
from claude_agent_sdk import ClaudeAgentOptions, SystemMessage, query


async def run(title: str, tools: Any) -> None:
    async for message in query(prompt="Which tools do you have?", options=ClaudeAgentOptions(tools=tools, max_turns=1)):
        if isinstance(message, SystemMessage) and message.subtype == "init":
            found = sorted(message.data["tools"])
            print(f"{title}:", "many" if len(found) > 8 else found)


async def main() -> None:
    await run("a list", ["Read", "Glob", "Grep"])
    await run("none", [])
    await run("preset", {"type": "preset", "preset": "claude_code"})


anyio.run(main)
