"""`parley --help` and `parley help [COMMAND [ACTION]]`, made from the tables of options and subcommands."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from textwrap import fill, wrap
from typing import Any

from parley.cli.commands.catalog import BY_NAME, COMMANDS, Command, Flag
from parley.cli.commands.subcommand import GivenArgs, unknown_action, usage_line, write_lines
from parley.cli.nearest import find_nearest
from parley.cli.stdio import write
from parley.cli.style import PLAIN, choose_style, terminal_width
from parley.errors import UnknownCommand
from parley.protocol.options import ROWS, Option
from parley.terminal.rendering.style import Styles

USAGE = """\
Usage: parley [options] [prompt]
       parley COMMAND [arguments]
"""
ABOUT = (
    "An engine for the agent wire protocol of Claude Code. `parley` alone at a terminal opens a conversation. With a "
    "prompt, from the command line or stdin, it answers and exits. With --input-format stream-json it serves a "
    "session. Models: an alias (opus, sonnet, haiku), a full name, "
    "openai:NAME, openai-responses:NAME, scripted:FILE, replay:FILE, or offline (no key, no network)."
)
FOOT = """
Examples:
  parley                                           (a conversation)
  parley "What does this project do?"
  git diff | parley -p "Review this change." --allowedTools Read Grep
  parley -p --model offline "say hello"            (no key, no network)
  parley -p --continue --max-budget-usd 0.50 "Now fix the first finding."
  parley sessions list
  parley doctor
"""
MIRIAD_HELP = """\
Usage: parley-miriad --db FILE [options]

Serve one session over stdin and stdout in the dialect miriad, or jsonrpc if the first line is JSON-RPC. It is the same
as `parley --stdio`: prompts are lines on stdin, answers are lines on stdout, until stdin ends.

  --db FILE                   Keep sessions in this SQLite file.
  --dialect NAME              The dialect, instead of detecting it.
  --model MODEL               The model: an alias, a full name, or BACKEND:NAME.
  --version                   Print the version and exit.

All options of `parley --help` are accepted, except a prompt. Subcommands belong to `parley`.

Example:
  echo '{"type":"user","message":{"role":"user","content":"say hello"}}' |
    parley-miriad --db agent.db --model offline
"""
SESSION_OPTIONS = "This command also accepts the session options: see `parley --help`."
INDENT = 30
"""The column of the sentences."""
WIDTH = 100
VALUES = {"none": "", "one": " {}", "maybe": " [{}]", "many": " {} ..."}


def write_help() -> int:
    """Print the help for the terminal that stdout is; returns the exit code."""
    return 0 if write(help_text(terminal_width(WIDTH), choose_style()).encode()) else 1


def help_text(width: int = WIDTH, style: Styles = PLAIN) -> str:
    parts = [
        f"{USAGE}\n{fill(ABOUT, width)}\n",
        f"\n{style.bold('Commands')} (parley help COMMAND):\n",
        *(format_line(f"  {command.name}", describe_command(command), width) for command in COMMANDS.values()),
    ]
    for heading, rows in groupby(ROWS, lambda row: row.group.heading):
        parts.append(f"\n{style.bold(f'{heading}:')}\n")
        parts += (format_row(row, width) for row in rows)
    return "".join(parts) + FOOT


def describe_command(command: Command) -> str:
    actions = "" if command.single else f" ({', '.join(command.actions)})"
    return command.help.removesuffix(".") + f"{actions}."


def format_row(row: Option[Any], width: int = WIDTH) -> str:
    """The flags and what they do."""
    sources = ", ".join(list_sources(row))
    return format_line(
        f"  {', '.join(row.flags)}{format_value(row)}", f"{row.help} ({sources})" if sources else row.help, width
    )


def format_line(start: str, text: str, width: int = WIDTH) -> str:
    """The start and, on the same line if it is short enough, the text, wrapped and indented."""
    lines = wrap(text, max(20, width - INDENT), break_on_hyphens=False)
    if len(start) > INDENT - 2:
        lines.insert(0, "")
    first, *rest = lines
    return "".join(
        line.rstrip() + "\n" for line in (f"{start:{INDENT}}{first}", *(" " * INDENT + line for line in rest))
    )


def format_value(row: Option[Any]) -> str:
    """What follows the flag, with a space before it: ` N`, ` [NAME]`, ` {on,off}`; empty for a switch."""
    choices = f"{{{','.join(row.kind.choices)}}}" if row.kind.choices else ""
    return VALUES[row.kind.words].format(row.metavar or choices or row.kind.metavar)


def list_sources(row: Option[Any]) -> list[str]:
    """The default, and where else the option can be set."""
    default = row.default if row.default not in (None, False, ()) else ""
    named = {"default": default, "variable": row.variable, "setting": row.setting}
    return [f"{name} {value}" for name, value in named.items() if value != ""]


def show_help(given: GivenArgs) -> int:
    if not given.words:
        return write_help()
    name, *action = given.words
    command = BY_NAME.get(name)
    if command is None:
        raise UnknownCommand(f"unknown command `{name}`{find_nearest(name, BY_NAME)}; see `parley help`")
    if not action:
        return write_lines([format_command(command)])
    if action[0] not in command.actions:
        raise unknown_action(command, action[0])
    return write_lines([format_action(command, action[0])])


def format_command(command: Command) -> str:
    """The help of a command: all its actions, and what they have in common."""
    if command.single is not None:
        return format_action(command, "")
    style, width = choose_style(), terminal_width(WIDTH)
    parts = [
        f"Usage: parley {command.name} COMMAND [arguments]\n\n{fill(command.help, width)}\n",
        f"\n{style.bold('Commands')} (parley {command.name} COMMAND --help):\n",
        *(
            format_line(f"  {name} {action.arguments}".rstrip(), action.help, width)
            for name, action in command.actions.items()
        ),
    ]
    flags = {flag.names: flag for action in command.actions.values() for flag in action.flags}
    parts += format_flags(flags.values(), style, width)
    return join(command, parts, any(action.takes_options for action in command.actions.values()), width)


def format_action(command: Command, name: str) -> str:
    """The help of one action."""
    style, width = choose_style(), terminal_width(WIDTH)
    action = command.actions[name]
    usage = fill(f"Usage: {usage_line(command, name)}", width, subsequent_indent=" " * 7, break_on_hyphens=False)
    parts = [f"{usage}\n\n{fill(action.help, width)}\n", *format_flags(action.flags, style, width)]
    return join(command, parts, action.takes_options, width)


def format_flags(flags: Iterable[Flag], style: Styles, width: int) -> Iterable[str]:
    rows = [
        format_line(f"  {', '.join(flag.names.split())} {flag.metavar}".rstrip(), flag.help, width) for flag in flags
    ]
    return [f"\n{style.bold('Options:')}\n", *rows] if rows else []


def join(command: Command, parts: list[str], takes_options: bool, width: int) -> str:
    aliases = f"Also called {', '.join(command.aliases)}." if command.aliases else ""
    notes = (SESSION_OPTIONS if takes_options else "", command.notes, aliases)
    return "".join(parts + [f"\n{fill(note, width)}\n" for note in notes if note]).rstrip("\n")
