"""The text of `--help`."""

from __future__ import annotations

from typing import Any

import pytest

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.help import FOOT, WIDTH, describe_option, format_line, format_value, help_text
from parley.protocol.option_kinds import Option
from parley.protocol.options import BY_FLAG, ROWS

HELP = help_text()
COMMAND_LIST, _, BODY = HELP.removesuffix(FOOT).partition("Commands (parley help COMMAND):\n")[2].partition("\n\n")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.field)
def test_every_flag_is_listed_with_its_sentence_and_its_choices(row: Option[Any]) -> None:
    text = " ".join(format_row(row).split())

    assert format_row(row) in f"{BODY}\n"
    assert all(flag in text for flag in row.flags)
    assert " ".join(row.help.split()) in text
    assert all(choice in format_value(row) for choice in row.kind.choices)


def format_row(row: Option[Any]) -> str:
    return format_line(f"  {', '.join(row.flags)}{format_value(row)}", describe_option(row))


def test_the_groups_have_their_headings_in_the_order_of_the_table() -> None:
    headings = list(dict.fromkeys(row.group.heading for row in ROWS))

    assert [line.removesuffix(":") for line in BODY.splitlines() if line[:1].strip()] == headings


def test_the_commands_are_listed_with_their_sentences_and_actions() -> None:
    text = " ".join(COMMAND_LIST.split())
    for command in COMMANDS.values():
        assert f"{command.name} {command.help.removesuffix('.')}" in text
        assert command.single or f"({', '.join(command.actions)})" in text


@pytest.mark.parametrize("width", [60, 80, WIDTH])
def test_no_sentence_is_wider_than_a_terminal(width: int) -> None:
    body = help_text(width).removesuffix(FOOT)
    flags = [line for line in body.splitlines() if line.startswith("  -")]  # a flag and its value are not broken

    assert [line for line in body.splitlines() if len(line) > width and line not in flags] == []


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--print", ""),
        ("--max-turns", " N"),
        ("--effort", " {low,medium,high,xhigh,max}"),
        ("--resume", " [SESSION]"),
        ("--add-dir", " DIR ..."),
        ("--prompt-suggestions", " [true|false]"),
    ],
)
def test_a_flag_shows_what_it_takes(flag: str, value: str) -> None:
    assert format_value(BY_FLAG[flag]) == value


def test_a_row_names_its_default_and_where_else_it_can_be_set() -> None:
    assert format_row(BY_FLAG["--max-turns"]) == (
        "  --max-turns N               End a turn after this many model calls. (setting limits.maxTurns)\n"
    )
    assert "(default turn, variable PARLEY_FSYNC, setting fsync)" in " ".join(format_row(BY_FLAG["--fsync"]).split())
