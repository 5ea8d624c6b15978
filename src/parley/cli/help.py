"""The text of `--help`, generated from the option table."""

from __future__ import annotations

from typing import Any

from parley.protocol.options import ROWS, WITHOUT_EFFECT, Option

HEAD = """\
Usage: parley [options] [prompt]
       parley permissions check TOOL INPUT | replay SESSION --settings FILE
       parley models [--check [NAME ...]]
       parley attach SESSION [--after SEQ] [--no-follow]
       parley sessions list | show | agents | search | export | import | fork | rename | tag | delete | repair
       parley memory list | show | search | history | diff | undo | consolidate
       parley trust DIR | --forget DIR | --list
       parley model-server [options]     (parley model-server --help)

An engine for the agent wire protocol of Claude Code. Without --input-format stream-json, it answers
one prompt, from the command line or stdin, and exits. Models: an alias (opus, sonnet, haiku), a full
name, openai:NAME, scripted:FILE, replay:FILE, or offline (no key, no network).

Options:
"""


WIDTH = 30
"""The column of the descriptions."""
VALUES = {"none": "", "one": " <value>", "maybe": " [value]", "many": " <values...>"}


def help_text() -> str:
    return HEAD + "".join(format_row(row) for row in ROWS if row.field not in WITHOUT_EFFECT)


def format_row(row: Option[Any]) -> str:
    """The flags and, on the same line if they are short enough, what they do."""
    flags = f"  {', '.join(row.flags)}{VALUES[row.kind.words]}"
    break_or_space = " " * (WIDTH - len(flags)) if len(flags) < WIDTH - 1 else "\n" + " " * WIDTH
    return f"{flags}{break_or_space}{row.help}\n"
