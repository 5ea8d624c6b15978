"""Fault injection for tests: `--fault` and faults in scripts."""
