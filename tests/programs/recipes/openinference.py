"""OpenInference: the spans of a turn with a call."""

# /// script
# dependencies = [
#     "openinference-instrumentation-claude-agent-sdk==0.1.22",
#     "claude-agent-sdk==0.2.184",
#     "opentelemetry-sdk",
# ]
# ///
from openinference.instrumentation.claude_agent_sdk import ClaudeAgentSDKInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from recipe import within

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
ClaudeAgentSDKInstrumentor().instrument(tracer_provider=provider)


async def main() -> None:
    from claude_agent_sdk import ClaudeAgentOptions, query

    options = ClaudeAgentOptions(allowed_tools=["Bash"])
    async for _ in query(prompt='call Bash {"command": "echo 42"}\nsay done', options=options):
        pass


within(main())
kinds = {str(span.attributes["openinference.span.kind"]) for span in spans.get_finished_spans()}
assert {"AGENT", "TOOL"} <= kinds, [span.to_json() for span in spans.get_finished_spans()]
