"""OpenTelemetry spans of a session, named by the GenAI semantic conventions.

    invoke_agent           a turn of the session or of a subagent
      chat MODEL           a model call, with its tokens
      execute_tool NAME    a tool call, which contains:
        hook EVENT         a hook run
        permission NAME    a permission request until its answer

If the engine runs inside a program with a tracer provider, spans go there. Otherwise they go to the exporters in
OTEL_TRACES_EXPORTER. `console` writes one line of JSON per span to stderr, because stdout carries the protocol. Other
names are those of installed exporters (`otlp` with opentelemetry-exporter-otlp). OTEL_EXPORTER_OTLP_PROTOCOL chooses
the exporter of `otlp`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from parley.observer import AttributeValue, Observation, Observer
from parley.version import __version__, how_to_install

W3C = TraceContextTextMapPropagator()
EXPORTERS = "opentelemetry_traces_exporter"
"""The entry point group of exporters."""
OTLP = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http", "http/json": "otlp_json_http"}
"""The exporters of `otlp`, by protocol."""
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
CLOSE_SECONDS = 3.0
"""How long the end of a session waits for the last spans to be exported."""
NAMES = {
    "response_model": "gen_ai.response.model",
    "response_id": "gen_ai.response.id",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_creation_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "error_type": "error.type",
    "result": "parley.result",
    "terminal_reason": "parley.terminal_reason",
    "model_calls": "parley.model_calls",
    "decision": "parley.permission.decision",
    "source": "parley.permission.source",
    "outcome": "parley.hook.outcome",
}
"""Attribute names, from the conventions where they define one."""


class Span(Observation):
    def __init__(self, span: trace.Span, *, is_current: bool, traces_requests: bool = False) -> None:
        self._span = span
        self._is_current = is_current
        self._traces_requests = traces_requests
        self._token: Any = None

    def set_attributes(self, **attributes: AttributeValue) -> None:
        for name, value in attributes.items():
            if name == "stop_reason" and value is not None:
                self._span.set_attribute("gen_ai.response.finish_reasons", [str(value)])
            elif value is not None and name in NAMES:
                self._span.set_attribute(NAMES[name], value)
        if attributes.get("error_type") is not None or attributes.get("is_error") is True:
            self._span.set_status(trace.StatusCode.ERROR)

    def headers(self) -> Mapping[str, str]:
        return trace_headers(trace.set_span_in_context(self._span)) if self._traces_requests else {}

    def __enter__(self) -> Span:
        if self._is_current:
            self._token = contexts.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace_back: TracebackType | None
    ) -> None:
        if kind is not None and kind is not GeneratorExit:
            self.set_attributes(error_type=getattr(exc, "kind", None) or kind.__name__)
        if self._token is not None:
            contexts.detach(self._token)
        self._span.end()


class OpenTelemetry(Observer):
    is_enabled = True

    def __init__(
        self,
        provider: trace.TracerProvider,
        environment: Mapping[str, str],
        close: Callable[[], None] | None = None,
        close_seconds: float = CLOSE_SECONDS,
    ) -> None:
        self._tracer = provider.get_tracer("parley", __version__)
        self._parent = parse_parent(environment)
        """The span that started this process, if known."""
        self._traces_requests = environment.get("PARLEY_TRACE_REQUESTS", "") in ("1", "true")
        self._close = close
        """Exports the remaining spans; None if the program's own provider does."""
        self._close_seconds = close_seconds

    def turn(self, session_id: str, agent: str | None, traceparent: str | None = None) -> Observation:
        name = agent or "parley"
        attributes = {"gen_ai.agent.name": name, "gen_ai.conversation.id": session_id}
        # The parent of a subagent's turn is the call that started it. The parent of the session's turn is the span that
        # the prompt names, or the one that started the process.
        named = parse_parent({"TRACEPARENT": traceparent}) if traceparent else None
        context = (named or self._parent) if agent is None else None
        return self._start(f"invoke_agent {name}", "invoke_agent", attributes, context=context)

    def model_call(self, provider: str, model: str) -> Observation:
        attributes = {"gen_ai.provider.name": provider, "gen_ai.request.model": model}
        # The generator runs in its consumer's context, so the span must not become the current one.
        return self._start(f"chat {model}", "chat", attributes, trace.SpanKind.CLIENT, is_current=False)

    def tool(self, name: str, tool_use_id: str) -> Observation:
        attributes = {"gen_ai.tool.name": name, "gen_ai.tool.call.id": tool_use_id, "gen_ai.tool.type": "function"}
        return self._start(f"execute_tool {name}", "execute_tool", attributes)

    def hook(self, event: str, label: str) -> Observation:
        return self._start(f"hook {event}", None, {"parley.hook.event": event, "parley.hook.name": label})

    def permission(self, tool: str, tool_use_id: str) -> Observation:
        attributes = {"gen_ai.tool.name": tool, "gen_ai.tool.call.id": tool_use_id}
        return self._start(f"permission {tool}", None, attributes)

    def child_environment(self) -> Mapping[str, str]:
        return {name.upper(): value for name, value in trace_headers(contexts.get_current()).items()}

    def close(self) -> None:
        if self._close is not None:
            # The exporter may not answer; the session waits only briefly.
            exporting = threading.Thread(target=self._close, name="parley spans", daemon=True)
            exporting.start()
            exporting.join(self._close_seconds)

    def _start(
        self,
        name: str,
        operation: str | None,
        attributes: dict[str, str],
        kind: trace.SpanKind = trace.SpanKind.INTERNAL,
        *,
        context: contexts.Context | None = None,
        is_current: bool = True,
    ) -> Span:
        if operation is not None:
            attributes = {"gen_ai.operation.name": operation, **attributes}
        span = self._tracer.start_span(name, context=context, kind=kind, attributes=attributes)
        return Span(span, is_current=is_current, traces_requests=self._traces_requests)


def trace_headers(context: contexts.Context) -> dict[str, str]:
    """The W3C headers of a context; empty if it has no span."""
    fields: dict[str, str] = {}
    W3C.inject(fields, context)
    return fields


def parse_parent(environment: Mapping[str, str]) -> contexts.Context | None:
    """The span in TRACEPARENT; None if it is missing or invalid."""
    fields = {name: environment[name.upper()] for name in ("traceparent", "tracestate") if name.upper() in environment}
    context = W3C.extract(fields, contexts.Context())
    return context if trace.get_current_span(context).get_span_context().is_valid else None


def create_observer(environment: Mapping[str, str], warn: Callable[[str], None]) -> Observer | None:
    """The observer: the program's tracer provider, or the exporters named in the environment; None if neither."""
    provider = trace.get_tracer_provider()
    if not isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return OpenTelemetry(provider, environment)
    names = [name.strip() for name in environment.get("OTEL_TRACES_EXPORTER", "").split(",")]
    exporters = [name for name in names if name and name != "none"]
    return create_exporting_observer(exporters, environment, warn) if exporters else None


def create_exporting_observer(
    exporters: list[str], environment: Mapping[str, str], warn: Callable[[str], None]
) -> Observer | None:
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
    except ImportError:
        warn(f"OTEL_TRACES_EXPORTER is set, but opentelemetry-sdk is missing: {how_to_install('otel')}")
        return None
    service = {"service.name": environment.get("OTEL_SERVICE_NAME") or "parley", "service.version": __version__}
    provider = TracerProvider(resource=Resource.create(service), shutdown_on_exit=False)
    processors = [processor for name in exporters if (processor := create_processor(name, environment, warn))]
    for processor in processors:
        provider.add_span_processor(processor)
    return OpenTelemetry(provider, environment, provider.shutdown) if processors else None


def otlp_exporters(environment: Mapping[str, str], warn: Callable[[str], None]) -> tuple[str, ...]:
    """The exporters that can serve `otlp`, in order of preference; none, with a warning, for an unknown protocol."""
    variable = next((name for name in PROTOCOLS if environment.get(name)), None)
    if variable is None:
        return ("otlp", OTLP["http/protobuf"], OTLP["grpc"])
    protocol = environment[variable].strip()
    if protocol not in OTLP:
        warn(f"{variable}: unknown protocol {protocol!r} (choose from {', '.join(OTLP)}); no spans are exported")
        return ()
    return (OTLP[protocol],)


def create_processor(name: str, environment: Mapping[str, str], warn: Callable[[str], None]) -> Any:
    """The span processor of an exporter; None, with a warning, if it cannot be used."""
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SimpleSpanProcessor

    if name == "console":
        exporter = ConsoleSpanExporter(out=sys.stderr, formatter=lambda span: f"{span.to_json(indent=None)}\n")
        return SimpleSpanProcessor(exporter)
    from importlib.metadata import entry_points

    candidates = otlp_exporters(environment, warn) if name == "otlp" else (name,)
    installed = {entry.name: entry for entry in entry_points(group=EXPORTERS)}
    found = next((installed[candidate] for candidate in candidates if candidate in installed), None)
    if found is None:
        if candidates:
            warn(f"OTEL_TRACES_EXPORTER: no installed package provides the exporter {candidates[0]!r}")
        return None
    try:
        return BatchSpanProcessor(found.load()())
    except Exception as exc:
        warn(f"OTEL_TRACES_EXPORTER: cannot create the exporter {name!r}: {type(exc).__name__}: {exc}")
        return None
