"""The scenarios and their checks, by theme. `load` imports them all, which registers them."""

from __future__ import annotations

from importlib import import_module

THEMES = (
    "basics", "invariants", "command_line", "flags", "limits", "tools", "tasks", "control", "interrupts", "input",
    "permissions", "modes", "hooks", "mcp", "sessions", "dialects",
)  # fmt: skip


def load() -> None:
    for theme in THEMES:
        import_module(f"{__name__}.{theme}")
