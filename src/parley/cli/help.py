"""The text of `--help`, generated from the option table."""

from __future__ import annotations

from itertools import groupby
from textwrap import wrap
from typing import Any

from parley.protocol.options import ROWS, Option

HEAD = """\
Usage: parley [options] [prompt]
       parley permissions check TOOL INPUT | replay SESSION --settings FILE
       parley models [--check [NAME ...]]
       parley attach SESSION [--after SEQ] [--no-follow]
       parley sessions list | show | agents | search | export | import | fork | rename | tag | delete | repair
       parley memory list | show | search | history | diff | undo | consolidate
       parley trust DIR | --forget DIR | --list
       parley mcp add | add-json | list | get | remove | reset-project-choices | serve
       parley plugin list | install | enable | disable | uninstall | validate
       parley config list | get | set | unset
       parley auth status | doctor | update     (each with --help)
       parley model-server [options]     (parley model-server --help)

An engine for the agent wire protocol of Claude Code. Without --input-format stream-json, it answers
one prompt, from the command line or stdin, and exits. Models: an alias (opus, sonnet, haiku), a full
name, openai:NAME, openai-responses:NAME, scripted:FILE, replay:FILE, or offline (no key, no network).
"""
FOOT = """
Examples:
  parley -p "What does this project do?"
  git diff | parley -p "Review this change." --allowedTools Read Grep
  parley -p --model offline "say hello"            (no key, no network)
  parley -p --continue --max-budget-usd 0.50 "Now fix the first finding."
"""
INDENT = 30
"""The column of the sentences."""
WIDTH = 100
VALUES = {"none": "", "one": " {}", "maybe": " [{}]", "many": " {} ..."}


def help_text() -> str:
    groups = groupby(ROWS, lambda row: row.group.heading)
    return HEAD + "".join(f"\n{heading}:\n{''.join(map(format_row, rows))}" for heading, rows in groups) + FOOT


def format_row(row: Option[Any]) -> str:
    """The flags and, on the same line if they are short enough, what they do."""
    sources = ", ".join(list_sources(row))
    lines = wrap(f"{row.help} ({sources})" if sources else row.help, WIDTH - INDENT, break_on_hyphens=False)
    flags = f"  {', '.join(row.flags)}{format_value(row)}"
    if len(flags) > INDENT - 2:
        lines.insert(0, "")
    first, *rest = lines
    return "".join(
        line.rstrip() + "\n" for line in (f"{flags:{INDENT}}{first}", *(" " * INDENT + line for line in rest))
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
