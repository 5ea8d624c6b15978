"""Logfire: the spans of a turn with a call."""

# /// script
# dependencies = ["logfire==4.31.0", "claude-agent-sdk==0.2.184"]
# ///
import logfire
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from recipe import within

spans = InMemorySpanExporter()
logfire.configure(send_to_logfire=False, console=False, additional_span_processors=[SimpleSpanProcessor(spans)])
logfire.instrument_claude_agent_sdk()


async def main() -> None:
    from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient

    async with ClaudeSDKClient(ClaudeAgentOptions(allowed_tools=["Bash"])) as client:
        await client.query('call Bash {"command": "echo 42"}\nsay done')
        async for _ in client.receive_response():
            pass


within(main())
names = [span.name for span in spans.get_finished_spans()]
assert any("Bash" in name for name in names), names
