"""Agents that the program defines, one or several of them.

Prints:
    == a reviewer
    agents: ['code-reviewer']
    used Agent: code-reviewer
    Claude: The reviewer found nothing.
    cost is known: True
    == several
    agents: ['analyzer', 'tester']
    used Agent: analyzer
    Claude: Analysed.
    cost is known: True
"""

import anyio
from claude_agent_sdk import (
    AgentDefinition,
    AssistantMessage,
    ClaudeAgentOptions,
    ResultMessage,
    SystemMessage,
    TextBlock,
    ToolUseBlock,
    query,
)


async def run(title: str, prompt: str, agents: dict[str, AgentDefinition]) -> None:
    print("==", title)
    options = ClaudeAgentOptions(agents=agents, allowed_tools=["Agent", "Task"])
    async for message in query(prompt=prompt, options=options):
        if isinstance(message, SystemMessage) and message.subtype == "init":
            print("agents:", sorted(set(message.data["agents"]) & set(agents)))
        elif isinstance(message, AssistantMessage) and message.parent_tool_use_id is None:
            for block in message.content:
                if isinstance(block, TextBlock):
                    print(f"Claude: {block.text}")
                elif isinstance(block, ToolUseBlock):
                    print("used Agent:", block.input["subagent_type"])
        elif isinstance(message, ResultMessage):
            print("cost is known:", (message.total_cost_usd or 0) > 0)


async def main() -> None:
    reviewer = AgentDefinition(
        description="Reviews code for best practices and possible mistakes",
        prompt="You review code. Be brief.",
        tools=["Read", "Grep"],
        model="sonnet",
    )
    await run("a reviewer", "Use the reviewer on src", {"code-reviewer": reviewer})
    analyzer = AgentDefinition(description="Analyses code", prompt="You analyse code.", tools=["Read", "Grep", "Glob"])
    tester = AgentDefinition(
        description="Writes tests", prompt="You write tests.", tools=["Read", "Write"], model="haiku"
    )
    await run("several", "Use the analyzer", {"analyzer": analyzer, "tester": tester})


anyio.run(main)
