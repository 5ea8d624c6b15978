"""A budget in dollars: enough, and by far too small.

Prints:
    == none
    Claude: 4
    success, costs something: True
    == enough
    Claude: 4
    success, costs something: True
    == too small
    error_max_budget_usd, costs something: True
    raised: True
"""

import anyio
from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ResultMessage, TextBlock, query


async def run(title: str, prompt: str, budget: float | None) -> None:
    print("==", title)
    options = ClaudeAgentOptions(max_budget_usd=budget, allowed_tools=["Bash"])
    try:
        async for message in query(prompt=prompt, options=options):
            if isinstance(message, AssistantMessage):
                for block in message.content:
                    if isinstance(block, TextBlock):
                        print(f"Claude: {block.text}")
            elif isinstance(message, ResultMessage):
                print(f"{message.subtype}, costs something: {(message.total_cost_usd or 0) > 0}")
    except Exception as exc:
        print("raised:", "budget" in str(exc))


async def main() -> None:
    await run("none", "What is 2 + 2?", None)
    await run("enough", "What is 2 + 2?", 0.10)
    await run("too small", "Read the readme and summarise it", 0.0001)


anyio.run(main)
