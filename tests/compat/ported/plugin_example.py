"""A plugin of a folder brings a command.

Prints:
    plugins: ['demo-plugin']
    its command is there: True
    Claude: Greetings!
"""

from pathlib import Path

import anyio
from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, SystemMessage, TextBlock, query

PLUGIN = Path.cwd() / "plugins" / "demo-plugin"


async def main() -> None:
    options = ClaudeAgentOptions(plugins=[{"type": "local", "path": str(PLUGIN)}], max_turns=1)
    async for message in query(prompt="/demo-plugin:greet", options=options):
        if isinstance(message, SystemMessage) and message.subtype == "init":
            print("plugins:", [plugin["name"] for plugin in message.data["plugins"]])
            print("its command is there:", "demo-plugin:greet" in message.data["slash_commands"])
        elif isinstance(message, AssistantMessage):
            for block in message.content:
                if isinstance(block, TextBlock):
                    print(f"Claude: {block.text}")


anyio.run(main)
