"""Load what a session loads up to its first result before there is one: for a resident engine and the gateway."""

from __future__ import annotations

from importlib import import_module

MODULES = (
    "parley.compose.certificates",
    "parley.engine.control.handlers.initialize",
    "parley.engine.turn.structured_output",
    "parley.engine.turn.turn",
    "parley.models.backends.anthropic",
    "parley.protocol.dialects.stream_json",
    "parley.settings.files.memory_files",
    "parley.settings.files.output_styles",
    "parley.tools.delegation.agent",
    "json",
)
"""None of them may read the environment, start a thread or open a file that stays open."""
SERVED_MODULES = (
    "parley.compose.workspace.sandbox",
    "parley.engine.control.dispatcher",
    "parley.engine.recovery.interrupted_turn",
    "parley.engine.session.hub",
    "parley.permissions.command",
    "parley.permissions.decision",
    "parley.permissions.policy",
    "parley.permissions.proven_command",
    "parley.permissions.sandbox",
    "parley.permissions.shell.deletion",
    "parley.permissions.shell.prefix_rules",
    "parley.permissions.updates",
    "parley.permissions.web_hosts",
    "parley.settings.writer",
    "parley.tools.shell.bash",
    "parley.workspace.sandbox.launcher",
    "parley.workspace.web",
)
"""What the first tool call and the first interrupted turn load besides. In a server, all other sessions would wait."""


def preload() -> None:
    for name in MODULES:
        import_module(name)
    from parley.compose.tools import load_definitions
    from parley.models.catalog import read_built_in

    load_definitions()
    read_built_in()


def preload_served() -> None:
    """The same for a process with many sessions."""
    preload()
    for name in SERVED_MODULES:
        import_module(name)
