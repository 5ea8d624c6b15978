"""Slash commands that the terminal answers itself. All others are prompts for the engine.

    found = find_command("/model sonnet")        -> (TerminalCommand("model", ...), "sonnet")
    await found[0].run(view, found[1])

One row of `COMMANDS` for each; the module of a command is imported when it runs. A request that the engine refuses is
shown as an error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module

from parley.terminal.base import TerminalCommand, View


def load(module: str, function: str) -> Callable[[View, str], Awaitable[None]]:
    """Runs a function of a module of this package."""

    async def run(view: View, argument: str) -> None:
        from parley.sdk.errors import ClaudeSDKError
        from parley.terminal.rendering.text import reveal_text, wrap

        try:
            await getattr(import_module(f"{__name__}.{module}"), function)(view, argument)
        except (ClaudeSDKError, OSError, ValueError) as exc:
            view.print([view.styles.bad(line) for line in wrap(reveal_text(str(exc)), view.width)])

    return run


COMMANDS: tuple[TerminalCommand, ...] = (
    TerminalCommand("agents", "List the subagents that the model can start", load("overview", "show_agents")),
    TerminalCommand("context", "Show what fills the context window", load("overview", "show_context")),
    TerminalCommand("cost", "Show what the session has used and cost", load("overview", "show_cost")),
    TerminalCommand("doctor", "Check the installation and the configuration", load("overview", "run_doctor")),
    TerminalCommand("export", "Write the conversation to a text file", load("sessions", "export"), "[FILE]"),
    TerminalCommand("help", "List the commands", load("overview", "show_help")),
    TerminalCommand("keys", "List the keys", load("overview", "show_keys")),
    TerminalCommand("mcp", "Show MCP servers; reconnect, enable or disable one", load("mcp", "manage_servers")),
    TerminalCommand("memory", "Open a memory file (CLAUDE.md)", load("overview", "open_memory")),
    TerminalCommand("model", "Choose the model", load("overview", "choose_model"), "[MODEL]"),
    TerminalCommand(
        "permissions",
        "List, test, add and remove permission rules",
        load("permissions", "manage_rules"),
        "[test|allow|ask|deny …]",
    ),
    TerminalCommand("resume", "Continue another session", load("sessions", "resume"), "[SEARCH]"),
    TerminalCommand("status", "Show the session and its environment", load("overview", "show_status")),
    TerminalCommand("theme", "Choose the colours", load("overview", "choose_theme"), "[THEME]"),
)


def find_command(text: str) -> tuple[TerminalCommand, str] | None:
    """The command that a line calls, and its argument; None if the line is for the engine."""
    name, _, argument = text.strip().partition(" ")
    for command in COMMANDS:
        if name == f"/{command.name}":
            return command, argument.strip()
    return None
