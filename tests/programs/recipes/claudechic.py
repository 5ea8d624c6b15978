"""A terminal UI: a turn, and a call that a person allows."""

# /// script
# dependencies = ["claudechic==0.4.26", "claude-agent-sdk==0.2.184", "httpx"]
# ///
import asyncio
from pathlib import Path

from claude_agent_sdk import ClaudeAgentOptions
from claudechic.agent import Agent
from claudechic.enums import AgentStatus, PermissionChoice
from claudechic.permissions import PermissionResponse
from recipe import within

asked = []


async def allow(agent: Agent, request: object) -> PermissionResponse:
    asked.append(request.tool_name)
    return PermissionResponse(PermissionChoice.ALLOW)


async def ask(agent: Agent, prompt: str) -> str:
    await agent.send(prompt)
    while agent.status != AgentStatus.IDLE:  # noqa: ASYNC110  the program has no event for it
        await asyncio.sleep(0.05)
    blocks = agent.messages[-1].content.blocks
    return "".join(getattr(block, "text", "") for block in blocks)


async def main() -> None:
    agent = Agent("plums", Path.cwd())
    agent.permission_handler = allow
    await agent.connect(ClaudeAgentOptions(cwd=Path.cwd(), include_partial_messages=True))
    assert await ask(agent, "say two plums") == "two plums"
    path = Path("plums.txt").absolute()
    await ask(agent, f'call Write {{"file_path": "{path}", "content": "two"}}\nsay done')
    assert (asked, path.read_text()) == (["Write"], "two")
    await agent.disconnect()


within(main())
