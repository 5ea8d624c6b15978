"""The system prompt: none, a text, the preset, the preset with something behind it, a file.

Prints:
    none: 4
    text: Arr, 4.
    preset: 4
    preset and more: 4, of course.
    file: Four.
"""

from pathlib import Path
from typing import Any

import anyio
from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, TextBlock, query

Path("prompt.md").write_text("You spell numbers out.")
PROMPTS: dict[str, Any] = {
    "none": None,
    "text": "You are a pirate. Answer in pirate speech.",
    "preset": {"type": "preset", "preset": "claude_code"},
    "preset and more": {"type": "preset", "preset": "claude_code", "append": "Always end with a remark."},
    "file": {"type": "file", "path": "prompt.md"},
}


async def main() -> None:
    for title, prompt in PROMPTS.items():
        options = None if prompt is None else ClaudeAgentOptions(system_prompt=prompt)
        async for message in query(prompt="What is 2 + 2?", options=options):
            if isinstance(message, AssistantMessage):
                for block in message.content:
                    if isinstance(block, TextBlock):
                        print(f"{title}: {block.text}")


anyio.run(main)
