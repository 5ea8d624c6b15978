"""Text of models, tools, files and titles runs nothing, loads nothing and looks like no control of the page.

Each hostile payload is shown in one frame; `python -m tests.stress.gateway.hostile_text` shows each in all of them.
"""

from __future__ import annotations

from pathlib import Path

from tests.helpers.console import needs_chromium
from tests.stress.gateway.hostile_text import (
    FRAMES,
    SAMPLE,
    STRINGS,
    show_messages,
    show_questions,
    show_titles_and_folders,
)

pytestmark = needs_chromium


def test_there_are_enough_strings() -> None:
    assert len(set(STRINGS)) >= 300
    assert len(set(SAMPLE)) == len(STRINGS) / len(FRAMES)


async def test_messages(tmp_path: Path) -> None:
    await show_messages(tmp_path, SAMPLE)


async def test_questions(tmp_path: Path) -> None:
    await show_questions(tmp_path, SAMPLE)


async def test_titles_and_folders(tmp_path: Path) -> None:
    await show_titles_and_folders(tmp_path, SAMPLE)
