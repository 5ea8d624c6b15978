"""Observability: OpenTelemetry spans."""
