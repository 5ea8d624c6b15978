"""Who watches a session. Mostly nobody: then nothing is loaded for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from parley.compose.registry import OBSERVERS, variety
from parley.observer import NOBODY, Observer
from parley.settings.env_vars import truthy


def observer(environment: Mapping[str, str], complain: Callable[[str], None]) -> Observer:
    """Only a program that uses OpenTelemetry itself, or an environment that names an exporter, wants spans."""
    names_one = environment.get("OTEL_TRACES_EXPORTER", "none").strip() not in ("", "none")
    if truthy(environment.get("OTEL_SDK_DISABLED")) or not (names_one or "opentelemetry.trace" in sys.modules):
        return NOBODY
    try:
        make = variety(OBSERVERS, "opentelemetry", "observer")
    except ImportError:
        complain("OTEL_TRACES_EXPORTER is set, but OpenTelemetry is not installed: pip install 'parley-agent[otel]'")
        return NOBODY
    found: Observer | None = make(environment, complain)
    return found or NOBODY
