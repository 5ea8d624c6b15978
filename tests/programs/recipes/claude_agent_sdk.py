"""The Python SDK: a turn, a question, an interrupt, a tool in the process, structured output."""

# /// script
# dependencies = ["claude-agent-sdk==0.2.184"]
# ///
from pathlib import Path

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResultAllow,
    ResultMessage,
    create_sdk_mcp_server,
    tool,
)
from recipe import within

asked = []


async def allow(name: str, input: dict[str, object], context: object) -> PermissionResultAllow:
    asked.append(name)
    return PermissionResultAllow()


@tool("weigh", "Weigh a fruit", {"fruit": str})
async def weigh(arguments: dict[str, str]) -> dict[str, object]:
    return {"content": [{"type": "text", "text": f"the {arguments['fruit']} weighs 42 g"}]}


async def ask(client: ClaudeSDKClient, prompt: str) -> ResultMessage:
    await client.query(prompt)
    return [line async for line in client.receive_response()][-1]


async def main() -> None:
    path = Path("plums.txt").absolute()
    options = ClaudeAgentOptions(
        can_use_tool=allow,
        mcp_servers={"scale": create_sdk_mcp_server("scale", tools=[weigh])},
        allowed_tools=["mcp__scale__weigh"],
    )
    async with ClaudeSDKClient(options) as client:
        assert (await ask(client, "say two plums")).result == "two plums"
        await ask(client, f'call Write {{"file_path": "{path}", "content": "two"}}\nsay done')
        assert (asked, path.read_text()) == (["Write"], "two")
        weighed = await ask(client, 'call mcp__scale__weigh {"fruit": "plum"}\nshow')
        assert "the plum weighs 42 g" in weighed.result
        await client.query('say one\ncall Write {"file_path": "/x", "content": "x"}\nwait 60\nsay never')
        async for line in client.receive_response():
            if isinstance(line, AssistantMessage):
                await client.interrupt()
        assert isinstance(line, ResultMessage)
        assert (await ask(client, "say three plums")).result == "three plums"


within(main())
