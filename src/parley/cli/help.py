"""The text of `--help`, generated from the option table."""

from __future__ import annotations

from parley.protocol.options import ROWS, WITHOUT_EFFECT

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


def help_text() -> str:
    values = {"none": "", "one": " <value>", "maybe": " [value]", "many": " <values...>"}
    lines = [f"  {', '.join(row.flags)}{values[row.kind.words]}\n" for row in ROWS if row.field not in WITHOUT_EFFECT]
    return HEAD + "".join(lines)
