"""`parley help [COMMAND [ACTION]]`: the help of Parley, of a command or of an action."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import fill

from parley.cli.commands.catalog import BY_NAME, COMMANDS, Command, Flag
from parley.cli.commands.subcommand import GivenArgs, run_command, unknown_action, usage_line, write_lines
from parley.cli.help import WIDTH, format_line, write_help
from parley.cli.nearest import find_nearest
from parley.cli.style import Style, choose_style, terminal_width
from parley.errors import UnknownCommand

SESSION_OPTIONS = "This command also accepts the session options: see `parley --help`."


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    return run_command(COMMANDS["help"], argv, {"": show_help})


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


def format_flags(flags: Iterable[Flag], style: Style, width: int) -> Iterable[str]:
    rows = [
        format_line(f"  {', '.join(flag.names.split())} {flag.metavar}".rstrip(), flag.help, width) for flag in flags
    ]
    return [f"\n{style.bold('Options:')}\n", *rows] if rows else []


def join(command: Command, parts: list[str], takes_options: bool, width: int) -> str:
    notes = [*([SESSION_OPTIONS] if takes_options else []), *([command.notes] if command.notes else [])]
    aliases = f"Also called {', '.join(command.aliases)}." if command.aliases else ""
    notes += [aliases] if aliases else []
    return "".join(parts + [f"\n{fill(note, width)}\n" for note in notes]).rstrip("\n")
