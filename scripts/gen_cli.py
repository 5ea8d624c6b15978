"""Generate the tables of flags in docs/cli.md and of commands in docs/subcommands.md."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from pages import fill, main, table

from parley.cli.commands.catalog import COMMANDS, Command
from parley.cli.commands.help import format_value
from parley.cli.commands.subcommand import usage_line
from parley.protocol.option_kinds import Option
from parley.protocol.options import FIELDS, ROWS

PAGE = "docs/cli.md"
SUBCOMMANDS = "docs/subcommands.md"


def pages() -> dict[str, str]:
    parts = {
        "flags": "\n".join(flag_tables()),
        "unflagged": "\n".join(table(("variable", "setting", "default", "effect"), unflagged_rows())),
    }
    commands = "\n".join(line for command in COMMANDS.values() for line in command_section(command))
    return {PAGE: fill(PAGE, parts), SUBCOMMANDS: fill(SUBCOMMANDS, {"commands": commands})}


def command_section(command: Command) -> Iterator[str]:
    aliases = f" Also called {' and '.join(map(code, command.aliases))}." if command.aliases else ""
    yield f"### {command.name}"
    yield ""
    yield f"{command.help}{aliases}"
    yield ""
    actions = ((code(usage_line(command, name)), action.help) for name, action in command.actions.items())
    yield from table(("command", "effect"), actions)
    yield ""
    if command.flags:
        yield from table(("option", "effect"), ((code(flag.term), flag.help) for flag in command.flags))
        yield ""
    if command.notes:
        yield command.notes
        yield ""


def flag_tables() -> Iterator[str]:
    for heading, rows in groupby(ROWS, lambda row: row.group.heading):
        yield f"### {heading}"
        yield ""
        yield from table(("flag", "effect", "also set by"), map(flag_row, rows))
        yield ""


def flag_row(row: Option[Any]) -> tuple[str, ...]:
    flags = ", ".join(map(code, [*row.flags[:-1], row.flags[-1] + format_value(row)]))
    return (flags, row.help + default(row, " Default: {}."), ", ".join(map(code, filter(None, sources(row)))))


def unflagged_rows() -> Iterator[tuple[str, ...]]:
    for row in FIELDS.values():
        if not row.flags:
            yield (*(code(source) if source else "" for source in sources(row)), default(row, "{}"), row.help)


def sources(row: Option[Any]) -> tuple[str, str]:
    return row.variable, row.setting


def default(row: Option[Any], form: str) -> str:
    return "" if row.default in (None, False, ()) else form.format(code(str(row.default)))


def code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


if __name__ == "__main__":
    raise SystemExit(main(pages()))
