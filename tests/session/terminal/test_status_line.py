"""The status line below the prompt, and the user's command for it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from parley.terminal.base import SessionStatus
from parley.terminal.rendering.style import Styles
from parley.terminal.status_line import StatusLine, clean_output, fit, format_status
from tests.helpers.terminal_view import PersonView

PLAIN = Styles(attributes=False)
STATUS = SessionStatus(mode="plan", model="sonnet", context_percent=12.4, cost_usd=0.5, cwd="/srv/app", session_id="s1")


async def show(folder: Path, setting: object, **options: str) -> list[str]:
    """The line after the command has run."""
    (folder / "home" / ".claude").mkdir(parents=True, exist_ok=True)
    (folder / "home" / ".claude" / "settings.json").write_text(json.dumps({"statusLine": setting}))
    async with PersonView(folder, **options) as view:
        refreshed = asyncio.Event()
        calls: list[None] = []

        def refresh() -> None:
            calls.append(None)
            if len(calls) == 2:  # the new figures, and the output of the command
                refreshed.set()

        status_line = StatusLine(view, refresh)
        status_line.update(STATUS)
        status_line.update(STATUS)
        await refreshed.wait()
        lines = status_line.render(200)
        await status_line.close()
    return lines


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (80, "plan mode · sonnet · context 12 % · $0.5000 · /srv/app"),
        (40, "plan mode · sonnet · context 12 %"),
        (12, "plan mode"),
    ],
)
def test_what_does_not_fit_is_left_out(columns: int, line: str) -> None:
    assert format_status(STATUS, PLAIN, columns) == line


async def test_the_command_gets_the_session_and_its_output_is_shown(tmp_path: Path) -> None:
    command = "cat > got.json; printf 'my \\033[32mline\\033[0m\\nsecond'; echo key=$ANTHROPIC_API_KEY"
    shown = await show(tmp_path, {"type": "command", "command": command}, api_key="sk-secret")

    got = json.loads((tmp_path / "got.json").read_text())
    assert shown == ["my line", "secondkey="]  # the styles of this view have no colours
    assert (got["model"]["id"], got["permission_mode"], got["session_id"]) == ("sonnet", "plan", "s1")
    assert (got["context_window"]["used_percentage"], got["cost"]["total_cost_usd"]) == (12.4, 0)


async def test_a_command_that_fails_leaves_the_usual_line_with_the_reason(tmp_path: Path) -> None:
    [line] = await show(tmp_path, {"type": "command", "command": "echo no; exit 3"})

    assert line == "plan mode · sonnet · context 12 % · $0.5000 · statusLine: exit code 3 · /srv/app"


async def test_a_command_that_does_not_answer_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.terminal.status_line.DEADLINE_SECONDS", 0.2)

    [line] = await show(tmp_path, {"type": "command", "command": "sleep 600 & sleep 600"})

    assert "statusLine: no answer" in line


def test_only_colours_of_the_output_reach_the_terminal() -> None:
    hostile = b"\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2J\x9b \xe2\x80\xae\r\nb\nc\nd"

    assert clean_output(hostile) == ["\x1b[31mred\x1b[0m \\x1b]0;title\\x07\\x1b[2J\ufffd \\u202e ", "b", "c"]


def test_a_line_with_colours_is_cut_at_the_width() -> None:
    assert fit("\x1b[31mabcdef\x1b[0m", 4) == "\x1b[31mabc…\x1b[0m"
    assert fit("abc", 4) == "abc"
