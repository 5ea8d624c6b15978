"""The span of OpenTelemetry in which a program speaks, as W3C spells it: for engines, and for their turns.

Nothing is loaded for it: a program that has a span has loaded what makes them.
"""

from __future__ import annotations

import sys


def trace_context() -> dict[str, str]:
    """`traceparent`, and `tracestate` where there is one; nothing without a span."""
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    fields: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(fields)
    return fields
