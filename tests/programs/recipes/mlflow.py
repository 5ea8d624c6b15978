"""MLflow: the trace of a turn with a call."""

# /// script
# dependencies = ["mlflow==3.17.2", "claude-agent-sdk==0.2.184", "anthropic"]
# ///
import mlflow.anthropic
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient
from recipe import within

mlflow.set_tracking_uri("sqlite:///traces.db")
mlflow.set_experiment("plums")
mlflow.anthropic.autolog()


async def main() -> None:
    async with ClaudeSDKClient(ClaudeAgentOptions(allowed_tools=["Bash"])) as client:
        await client.query('call Bash {"command": "echo 42"}\nsay done')
        async for _ in client.receive_response():
            pass


within(main())
mlflow.flush_trace_async_logging()
traces = mlflow.search_traces(return_type="list")
names = [span.name for trace in traces for span in trace.data.spans]
assert any("Bash" in name for name in names), names
