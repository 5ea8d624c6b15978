"""Slash commands that the terminal answers itself."""

from __future__ import annotations

from parley.terminal.base import TerminalCommand

COMMANDS: tuple[TerminalCommand, ...] = ()


def find_command(text: str) -> tuple[TerminalCommand, str] | None:
    """The command that a prompt names, and its argument; None if the prompt is for the engine."""
    name, _, argument = text.removeprefix("/").partition(" ")
    found = next((command for command in COMMANDS if command.name == name), None)
    return None if found is None or not text.startswith("/") else (found, argument.strip())
