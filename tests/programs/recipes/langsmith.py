"""LangSmith: the runs of a turn with a call, kept in the process."""

# /// script
# dependencies = ["langsmith[claude-agent-sdk]==0.14.17", "claude-agent-sdk==0.2.184"]
# ///
import os
from unittest import mock

os.environ.update(LANGSMITH_TRACING="true", LANGSMITH_API_KEY="none", LANGSMITH_ENDPOINT="http://127.0.0.1:9")
from langsmith import Client, tracing_context
from langsmith.integrations.claude_agent_sdk import configure_claude_agent_sdk
from recipe import within

runs = []


class Kept(Client):
    """Keeps runs instead of sending them."""

    def create_run(self, name: str, inputs: object, run_type: str, **more: object) -> None:
        runs.append((name, run_type))

    def update_run(self, *words: object, **more: object) -> None:
        pass


async def main() -> None:
    import claude_agent_sdk

    options = claude_agent_sdk.ClaudeAgentOptions(allowed_tools=["Bash"])
    async with claude_agent_sdk.ClaudeSDKClient(options) as client:
        await client.query('call Bash {"command": "echo 42"}\nsay done')
        async for _ in client.receive_response():
            pass


configure_claude_agent_sdk()
with tracing_context(enabled=True, client=Kept(session=mock.Mock())):
    within(main())
assert ("Bash", "tool") in runs, runs
