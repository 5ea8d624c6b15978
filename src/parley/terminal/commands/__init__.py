"""Slash commands that the terminal answers itself. All others are prompts for the engine.

    command, argument = find_command("/model sonnet")
    await command.run(view, argument)

One row of `COMMANDS` for each; the module of a command is imported when it runs. A request that the engine refuses is
shown as an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module

from parley.sdk.errors import ClaudeSDKError
from parley.terminal.base import View
from parley.terminal.rendering.text import reveal_text, wrap


@dataclass(frozen=True)
class TerminalCommand:
    """A slash command that the terminal answers itself."""

    name: str
    summary: str
    function: str
    """The function that runs it, as `MODULE:NAME` in this package."""
    argument: str = ""
    """How its argument is called in the help, such as `[NAME]`."""

    async def run(self, view: View, argument: str) -> None:
        module, _, name = self.function.partition(":")
        try:
            await getattr(import_module(f"{__name__}.{module}"), name)(view, argument)
        except (ClaudeSDKError, OSError, ValueError) as exc:
            view.print([view.styles.bad(line) for line in wrap(reveal_text(str(exc)), view.width)])


COMMANDS = (
    TerminalCommand("add-dir", "Let the model work in another folder too", "settings:add_folder", "[FOLDER]"),
    TerminalCommand("agents", "List the subagents that the model can start", "overview:show_agents"),
    TerminalCommand("config", "Show and change settings", "settings:configure", "[KEY [VALUE]]"),
    TerminalCommand("context", "Show what fills the context window", "overview:show_context"),
    TerminalCommand("copy", "Copy the last answer", "work:copy_answer"),
    TerminalCommand("cost", "Show what the session has used and cost", "overview:show_cost"),
    TerminalCommand("diff", "Show the changes that are not committed", "work:show_diff", "[PATH]"),
    TerminalCommand("doctor", "Check the installation and the configuration", "overview:run_doctor"),
    TerminalCommand("export", "Write the conversation to a text file", "sessions:export", "[FILE]"),
    TerminalCommand("fork", "Continue in a copy of the session", "sessions:fork", "[TITLE]"),
    TerminalCommand("help", "List the commands", "overview:show_help"),
    TerminalCommand("hooks", "List the hooks", "settings:show_hooks"),
    TerminalCommand("keys", "List the keys", "overview:show_keys"),
    TerminalCommand("mcp", "Show MCP servers; reconnect, enable or disable one", "mcp:manage_servers"),
    TerminalCommand("memory", "Open a memory file (CLAUDE.md)", "overview:open_memory"),
    TerminalCommand("model", "Choose the model", "overview:choose_model", "[MODEL]"),
    TerminalCommand("output-style", "Choose the output style", "settings:choose_output_style", "[STYLE]"),
    TerminalCommand(
        "permissions",
        "List, test, add and remove permission rules",
        "permissions:manage_rules",
        "[test|allow|ask|deny …]",
    ),
    TerminalCommand("plan", "Change to plan mode", "work:plan", "[PROMPT]"),
    TerminalCommand("rename", "Give the session a title", "sessions:rename", "[TITLE]"),
    TerminalCommand("resume", "Continue another session", "sessions:resume", "[SEARCH]"),
    TerminalCommand("rewind", "Go back to before an earlier prompt", "sessions:rewind"),
    TerminalCommand("status", "Show the session and its environment", "overview:show_status"),
    TerminalCommand("statusline", "Set the command of the status line", "settings:set_status_line", "[COMMAND|off]"),
    TerminalCommand("tasks", "Show background tasks; read the output of one, or stop it", "work:manage_tasks"),
    TerminalCommand("theme", "Choose the colours", "settings:choose_theme", "[THEME]"),
    TerminalCommand("thinking", "Show or hide the model's thinking", "work:toggle_thinking"),
    TerminalCommand("todos", "Show the list of todos", "work:show_todos"),
    TerminalCommand("undo", "Go back to before the last prompt", "sessions:undo"),
    TerminalCommand("vim", "Edit prompts with the keys of vi, or not", "settings:toggle_vim"),
)
ALIASES = {"bashes": "tasks", "checkpoint": "rewind", "branch": "fork"}
"""Other names that people know from Claude Code."""


def find_command(text: str) -> tuple[TerminalCommand, str] | None:
    """The command that a line calls, and its argument; None if the line is for the engine."""
    name, _, argument = text.strip().partition(" ")
    for command in COMMANDS:
        if name.startswith("/") and ALIASES.get(name[1:], name[1:]) == command.name:
            return command, argument.strip()
    return None


def find_meant(text: str, known: Iterable[str]) -> str | None:
    """The command of the terminal that an unknown name is probably a mistake for. `known`: those of the engine."""
    found = re.fullmatch(r"/([\w:-]+)(\s.*)?", text.strip(), re.DOTALL)
    if found is None or found[1] in known or found[1].startswith("mcp__"):  # servers may not be connected yet
        return None
    near = get_close_matches(found[1], [*(command.name for command in COMMANDS), *ALIASES, *known], n=1)
    return near[0] if near else None
