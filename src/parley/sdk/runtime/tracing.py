"""The current OpenTelemetry span as W3C trace context, which is passed to engines and their turns.

OpenTelemetry is not imported here: without it, the program has no span.
"""

from __future__ import annotations

import sys


def trace_context() -> dict[str, str]:
    """Return `traceparent`, and `tracestate` if present; empty without a span."""
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    fields: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(fields)
    return fields
