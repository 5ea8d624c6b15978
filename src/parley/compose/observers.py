"""The observer of a session. Without OpenTelemetry nothing is loaded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from parley.compose.registry import OBSERVERS, load
from parley.observer import NULL_OBSERVER, Observer
from parley.settings.env_vars import is_truthy
from parley.version import how_to_install

UNUSED_EXPORTERS = ("OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER")


def list_unused_exporters(environment: Mapping[str, str]) -> list[str]:
    """A warning for every exporter that CLAUDE_CODE_ENABLE_TELEMETRY would start in Claude Code, and not here."""
    if not is_truthy(environment.get("CLAUDE_CODE_ENABLE_TELEMETRY")):
        return []
    wanted = [name for name in UNUSED_EXPORTERS if environment.get(name, "none").strip() not in ("", "none")]
    return [f"{name} has no effect: only traces are exported (OTEL_TRACES_EXPORTER)" for name in wanted]


def make_observer(environment: Mapping[str, str], warn: Callable[[str], None]) -> Observer:
    """Spans are made if the program uses OpenTelemetry itself, or the environment names an exporter."""
    names_one = environment.get("OTEL_TRACES_EXPORTER", "none").strip() not in ("", "none")
    if is_truthy(environment.get("OTEL_SDK_DISABLED")) or not (names_one or "opentelemetry.trace" in sys.modules):
        return NULL_OBSERVER
    try:
        make = load(OBSERVERS, "opentelemetry", "observer")
    except ImportError:
        warn(f"OTEL_TRACES_EXPORTER is set, but OpenTelemetry is not installed: {how_to_install('otel')}")
        return NULL_OBSERVER
    found: Observer | None = make(environment, warn)
    return found or NULL_OBSERVER
