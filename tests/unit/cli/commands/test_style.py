"""Colours."""

from __future__ import annotations

import os

import pytest

from parley.cli.commands.subcommand import ON, PLAIN, choose_style


def test_a_style_that_is_off_changes_nothing() -> None:
    assert (PLAIN.bold("x"), ON.bad("x"), ON.bad("")) == ("x", "\x1b[31mx\x1b[0m", "")


@pytest.mark.parametrize(
    ("variables", "is_on"),
    [
        ({"TERM": "xterm"}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "0"}, False),
        ({"FORCE_COLOR": "3", "NO_COLOR": "1"}, False),
    ],
)
def test_a_pipe_has_no_colours_unless_they_are_forced(variables: dict[str, str], is_on: bool) -> None:
    reader, writer = os.pipe()
    try:
        assert choose_style(variables, writer).has_color == is_on
    finally:
        os.close(reader)
        os.close(writer)
