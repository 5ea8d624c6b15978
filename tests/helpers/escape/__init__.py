"""Attempts to escape from the sandbox, and the place that notices when one succeeds."""
