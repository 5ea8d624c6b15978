"""Runs the hooks of a session at all its events. Loaded with the first hook."""

from __future__ import annotations

from parley.engine.hooks.tool_hooks import ToolHooks
from parley.engine.hooks.turn_hooks import TurnHooks


class HookDispatcher(ToolHooks, TurnHooks):
    """The events of a session with hooks."""
