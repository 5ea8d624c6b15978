"""The scenarios and their checks, by theme. `load` imports them all, which registers them."""

from __future__ import annotations

from importlib import import_module

THEMES = (
    "basics", "invariants", "command_line", "tools", "control", "interrupts", "permissions", "hooks", "mcp", "sessions",
    "dialects",
)  # fmt: skip


def load() -> None:
    for theme in THEMES:
        import_module(f"{__name__}.{theme}")
