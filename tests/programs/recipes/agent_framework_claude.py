"""Microsoft's Agent Framework: an answer, a stream, a tool in the process, a session."""

# /// script
# dependencies = ["agent-framework-claude==1.0.0b261015"]
# ///
from agent_framework_claude import ClaudeAgent
from recipe import within


def weigh(fruit: str) -> str:
    """Weigh a fruit."""
    return f"the {fruit} weighs 42 g"


async def main() -> None:
    options = {"permission_mode": "bypassPermissions"}
    async with ClaudeAgent("You weigh fruit.", tools=[weigh], default_options=options) as agent:
        assert (await agent.run("say two plums")).text == "two plums"
        chunks = [chunk.text async for chunk in agent.run("say three plums", stream=True)]
        assert "".join(chunks) == "three plums"
        prompt = 'call mcp___agent_framework_tools__weigh {"fruit": "plum"}\nshow'
        assert "the plum weighs 42 g" in (await agent.run(prompt)).text


within(main())
