"""`parley man`: the manual page in roff, from the tables of options and subcommands."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from textwrap import wrap

from parley.cli.commands.catalog import COMMANDS, Command
from parley.cli.commands.help import ABOUT, FOOT, format_value, list_sources
from parley.cli.commands.subcommand import GivenArgs, usage_line, write_lines
from parley.protocol.options import FIELDS, ROWS
from parley.version import PROTOCOL_LEVEL, __version__

COLUMNS = 70
"""Lines of the source have at most 80 characters, with their escapes."""
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
    yield f'.TH PARLEY 1 "" "Parley {__version__}" "User Commands"'
    yield from section("NAME", r"parley \- an engine for the agent wire protocol of Claude Code")
    yield ".SH SYNOPSIS"
    yield ".B parley\n[\\fIoptions\\fR] [\\fIprompt\\fR]\n.br\n.B parley\n\\fICOMMAND\\fR [\\fIarguments\\fR]"
    yield from section("DESCRIPTION", paragraph(ABOUT), f"It follows the protocol of Claude Code {PROTOCOL_LEVEL}.")
    yield ".SH OPTIONS"
    for heading, rows in groupby(ROWS, lambda row: row.group.heading):
        yield f".SS {escape(heading)}"
        for row in rows:
            sources = ", ".join(list_sources(row))
            yield from entry(
                ", ".join(row.flags) + format_value(row), f"{row.help} ({sources})" if sources else row.help
            )
    yield ".SH COMMANDS"
    for command in COMMANDS.values():
        yield from format_command(command)
    yield from list_section("EXIT STATUS", EXIT_CODES)
    variables = {row.variable: row.help for row in FIELDS.values() if row.variable}
    yield from list_section("ENVIRONMENT", KEYS | variables)
    yield from list_section("FILES", FILES)
    yield ".SH EXAMPLES"
    yield ".nf"
    yield from (escape(line.strip()) for line in FOOT.splitlines()[2:])
    yield ".fi"


def format_command(command: Command) -> Iterator[str]:
    yield f".SS parley {escape(command.name)}"
    yield paragraph(command.help)
    for name, action in command.actions.items():
        yield from entry(usage_line(command, name), action.help)
    flags = {flag.names: flag for action in command.actions.values() for flag in action.flags}
    for flag in flags.values():
        yield from entry(f"{', '.join(flag.names.split())} {flag.metavar}".rstrip(), flag.help)
    if command.notes:
        yield ".PP"
        yield paragraph(command.notes)


def list_section(title: str, rows: dict[str, str]) -> Iterator[str]:
    yield f".SH {title}"
    for name, text in rows.items():
        yield from entry(name, text)


def section(title: str, *paragraphs: str) -> Iterator[str]:
    yield f".SH {title}"
    yield "\n.PP\n".join(paragraphs)


def entry(term: str, text: str) -> Iterator[str]:
    yield ".TP"
    # The term is one line of the page; `\c` joins the lines of a long one.
    yield "\\fB" + " \\c\n".join(paragraph(term).split("\n")) + "\\fR"
    yield paragraph(text)


def paragraph(text: str) -> str:
    return "\n".join(map(escape, wrap(text, COLUMNS, break_on_hyphens=False, break_long_words=False)))


def escape(text: str) -> str:
    """Text as roff shows it: no control lines, and hyphens that can be copied."""
    safe = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("~", "\\(ti").replace("^", "\\(ha").replace("`", "\\(ga")
    )
    return f"\\&{safe}" if safe.startswith((".", "'")) else safe
