"""Completion of commands and files in a prompt."""

from __future__ import annotations

from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from parley.terminal.commands import find_command
from parley.terminal.commands.overview import draw_bar
from parley.terminal.interfaces.live import PromptCompleter
from tests.helpers.terminal_view import PersonView


async def complete(view: PersonView, text: str) -> list[tuple[str, int]]:
    found = PromptCompleter(view).get_completions_async(Document(text), CompleteEvent())
    return [(one.text, one.start_position) async for one in found]


async def test_commands_are_completed_at_the_start_and_files_anywhere(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("")
    (tmp_path / "my notes.txt").write_text("")
    async with PersonView(tmp_path) as view:
        assert await complete(view, "/perm") == [("/permissions", -5)]
        assert ("/compact", -4) in await complete(view, "/com")
        assert await complete(view, "say /perm") == []
        assert await complete(view, "Read @main") == [("@src/main.py", -5)]
        assert await complete(view, 'Read (@"note') == [('@"my notes.txt"', -6)]
        assert await complete(view, "mail me@main") == []
    assert await complete(PersonView(tmp_path), "@main") == []  # not connected


@pytest.mark.parametrize(
    ("text", "name", "argument"),
    [("/model", "model", ""), ("/model  sonnet ", "model", "sonnet"), ("/compact", None, ""), ("/models", None, "")],
)
def test_a_command_that_the_terminal_does_not_have_is_for_the_engine(
    text: str, name: str | None, argument: str
) -> None:
    found = find_command(text)

    assert ((None, "") if found is None else (found[0].name, found[1])) == (name, argument)


@pytest.mark.parametrize(("share", "bar"), [(0, "    "), (0.001, "▏   "), (0.5, "██  "), (0.53, "██▏ "), (1.2, "████")])
def test_a_bar_shows_eighths_of_a_cell(share: float, bar: str) -> None:
    assert draw_bar(share, 4) == bar
