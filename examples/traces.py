"""Record OpenTelemetry spans under a span of your program. (Needs the `otel` extra.)

Prints:
    my work
      invoke_agent parley
        chat offline, 1 of 2
        execute_tool Bash
          permission Bash: allow
        chat offline, 2 of 2
"""

import asyncio
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from parley import Client, Options, PermissionResult, PermissionResultAllow

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)


async def decide(name: str, input: dict[str, Any], context: Any) -> PermissionResult:
    return PermissionResultAllow()


async def main() -> None:
    with trace.get_tracer("my-program").start_as_current_span("my work"):
        async with Client(Options(model="offline", engine="local", can_use_tool=decide)) as client:
            await client.run('call Bash {"command": "touch here"}\nsay Done.')


def show(parent: int | None, depth: int = 0) -> None:
    found = [span for span in spans.get_finished_spans() if (span.parent.span_id if span.parent else None) == parent]
    chats = [span for span in found if span.name.startswith("chat ")]
    for span in sorted(found, key=lambda span: span.start_time or 0):
        number = f", {sorted(chats, key=start_time).index(span) + 1} of {len(chats)}" if span in chats else ""
        decision = (span.attributes or {}).get("parley.permission.decision")
        print("  " * depth + span.name + number + (f": {decision}" if decision else ""))
        if (context := span.get_span_context()) is not None:
            show(context.span_id, depth + 1)


def start_time(span: ReadableSpan) -> int:
    return span.start_time or 0


asyncio.run(main())
show(None)
