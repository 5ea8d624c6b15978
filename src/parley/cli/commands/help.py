"""`parley --help`, `parley help [COMMAND [ACTION]]` and `parley man`, from the tables of options and subcommands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from textwrap import fill, wrap
from typing import Any

from parley.cli.commands.catalog import BY_NAME, COMMANDS, Command, Flag
from parley.cli.commands.subcommand import (
    PLAIN,
    GivenArgs,
    choose_style,
    terminal_width,
    unknown_action,
    usage_line,
    write_lines,
)
from parley.cli.nearest import find_nearest
from parley.cli.stdio import write
from parley.errors import UnknownCommand
from parley.protocol.option_kinds import Option
from parley.protocol.options import FIELDS, ROWS
from parley.terminal.rendering.style import Styles
from parley.version import PROTOCOL_LEVEL, __version__

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
    commands = [(command.name, describe_command(command)) for command in COMMANDS.values()]
    parts = [
        f"{USAGE}\n{fill(ABOUT, width)}\n",
        *format_entries("Commands", commands, style, width, " (parley help COMMAND)"),
    ]
    for heading, entries in list_options():
        parts += format_entries(heading, entries, style, width)
    return "".join(parts) + FOOT


def list_options() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The options of a session by heading: how each is called, and what it does."""
    for heading, rows in groupby(ROWS, lambda row: row.group.heading):
        yield heading, [(", ".join(row.flags) + format_value(row), describe_option(row)) for row in rows]


def describe_option(row: Option[Any]) -> str:
    """What an option does, its default, and where else it can be set."""
    default = row.default if row.default not in (None, False, ()) else ""
    named = {"default": default, "variable": row.variable, "setting": row.setting}
    sources = ", ".join(f"{name} {value}" for name, value in named.items() if value != "")
    return f"{row.help} ({sources})" if sources else row.help


def format_entries(
    heading: str, entries: Iterable[tuple[str, str]], style: Styles, width: int, more: str = ""
) -> list[str]:
    """A heading, and its entries below it; nothing if there are none."""
    lines = [format_line(f"  {term}", text, width) for term, text in entries]
    bold = f"{style.bold(heading)}{more}:" if more else style.bold(f"{heading}:")
    return [f"\n{bold}\n", *lines] if lines else []


def describe_command(command: Command) -> str:
    actions = "" if command.single else f" ({', '.join(command.actions)})"
    return command.help.removesuffix(".") + f"{actions}."


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
    actions = [(f"{name} {action.arguments}".rstrip(), action.help) for name, action in command.actions.items()]
    more = f" (parley {command.name} COMMAND --help)"
    parts = [
        f"Usage: parley {command.name} COMMAND [arguments]\n\n{fill(command.help, width)}\n",
        *format_entries("Commands", actions, style, width, more),
        *format_flags(command.flags, style, width),
    ]
    return join(command, parts, any(action.takes_options for action in command.actions.values()), width)


def format_action(command: Command, name: str) -> str:
    """The help of one action."""
    style, width = choose_style(), terminal_width(WIDTH)
    action = command.actions[name]
    usage = fill(f"Usage: {usage_line(command, name)}", width, subsequent_indent=" " * 7, break_on_hyphens=False)
    parts = [f"{usage}\n\n{fill(action.help, width)}\n", *format_flags(action.flags, style, width)]
    return join(command, parts, action.takes_options, width)


def format_flags(flags: Iterable[Flag], style: Styles, width: int) -> list[str]:
    return format_entries("Options", [(flag.term, flag.help) for flag in flags], style, width)


def join(command: Command, parts: list[str], takes_options: bool, width: int) -> str:
    aliases = f"Also called {', '.join(command.aliases)}." if command.aliases else ""
    notes = (SESSION_OPTIONS if takes_options else "", command.notes, aliases)
    return "".join(parts + [f"\n{fill(note, width)}\n" for note in notes if note]).rstrip("\n")


# The manual page, in roff.

PAGE_WIDTH = 72
EXIT_CODES = {
    "0": "The last result was successful.",
    "1": "The last result is an error; or the command line, settings, session or stdout cannot be used.",
    "2": "An option or command is unknown, the arguments of a command are wrong, or `permissions check` denies.",
    "3": "A call was denied, with --fail-on-denial.",
    "4": "`permissions check` failed without a decision.",
    "130": "Interrupted by a second SIGINT.",
    "143": "Ended by SIGTERM or SIGHUP.",
}
FILES = {
    "~/.claude/settings.json": "The settings of the user.",
    ".claude/settings.json": "The settings of a project; they take full effect after `parley trust`.",
    ".mcp.json": "The MCP servers of a project.",
    "~/.claude/projects": "The sessions.",
}
KEYS = {
    "ANTHROPIC_API_KEY": "The API key for the Messages API.",
    "ANTHROPIC_BASE_URL": "The URL of the server with the Messages API.",
    "OPENAI_API_KEY, OPENAI_BASE_URL": "The key and the server for models named openai:NAME and openai-responses:NAME.",
    "CLAUDE_CONFIG_DIR": "The configuration directory, instead of ~/.claude.",
    "NO_COLOR, FORCE_COLOR": "Turn colours off or on.",
}


def write_page(given: GivenArgs) -> int:
    return write_lines(format_page())


def format_page() -> Iterator[str]:
    """The page: the lines of the help, which roff does not fill again."""
    variables = KEYS | {row.variable: row.help for row in FIELDS.values() if row.variable}
    sections = {
        "NAME": "parley - an engine for the agent wire protocol of Claude Code",
        "SYNOPSIS": USAGE,
        "DESCRIPTION": fill(f"{ABOUT} It follows the protocol of Claude Code {PROTOCOL_LEVEL}.", PAGE_WIDTH),
        "OPTIONS": "".join(part for heading, rows in list_options() for part in page_entries(heading, rows)),
        "COMMANDS": "".join(map(page_command, COMMANDS.values())),
        "EXIT STATUS": "".join(page_entries("", EXIT_CODES.items())),
        "ENVIRONMENT": "".join(page_entries("", variables.items())),
        "FILES": "".join(page_entries("", FILES.items())),
        "EXAMPLES": FOOT.partition("Examples:\n")[2],
    }
    yield f'.TH PARLEY 1 "" "Parley {__version__}" "User Commands"'
    for title, text in sections.items():
        yield from (f".SH {title}", ".nf", *map(escape, text.strip("\n").split("\n")), ".fi")


def page_entries(heading: str, entries: Iterable[tuple[str, str]]) -> list[str]:
    return format_entries(heading, entries, PLAIN, PAGE_WIDTH)[not heading :]


def page_command(command: Command) -> str:
    actions = [
        (" ".join(filter(None, ("parley", command.name, name, action.arguments))), action.help)
        for name, action in command.actions.items()
    ]
    flags = [(flag.term, flag.help) for flag in command.flags]
    notes = f"{fill(command.notes, PAGE_WIDTH)}\n" if command.notes else ""
    return "".join([*page_entries(f"parley {command.name}", [*actions, *flags]), notes])


def escape(text: str) -> str:
    """Text as roff shows it: no control lines, and hyphens that can be copied."""
    for char, name in (("\\", "\\e"), ("-", "\\-"), ("~", "\\(ti"), ("^", "\\(ha"), ("`", "\\(ga")):
        text = text.replace(char, name)
    return f"\\&{text}" if text.startswith((".", "'")) else text
