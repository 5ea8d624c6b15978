"""Braintrust: the spans of a turn with a call."""

# /// script
# dependencies = ["braintrust==0.47.0", "claude-agent-sdk==0.2.184", "pytest"]
# ///
from braintrust.logger import _internal_with_memory_background_logger
from braintrust.test_helpers import init_test_logger, simulate_login
from braintrust.wrappers.claude_agent_sdk import setup_claude_agent_sdk
from recipe import within


async def main() -> None:
    import claude_agent_sdk

    options = claude_agent_sdk.ClaudeAgentOptions(allowed_tools=["Bash"])
    async with claude_agent_sdk.ClaudeSDKClient(options) as client:
        await client.query('call Bash {"command": "echo 42"}\nsay done')
        async for _ in client.receive_response():
            pass


with _internal_with_memory_background_logger() as memory:
    simulate_login()
    init_test_logger("plums")
    setup_claude_agent_sdk(project="plums")
    within(main())
    names = [span["span_attributes"]["name"] for span in memory.pop() if span.get("span_attributes")]
assert "Bash" in names, names
