"""A person at the commands of the terminal: a real client, and answers that are given in advance.

async with PersonView(folder, "say hi", answers=["Find", None]) as view:
    await run_command(view, "/resume")
    assert "..." in view.text
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from parley import Client, Options
from parley.terminal.base import Row
from parley.terminal.commands import find_command
from parley.terminal.rendering.style import THEMES, Styles
from tests.helpers.terminal import make_environment


class PersonView:
    """A `View`. An answer picks the first row whose label contains it, is typed, or is yes or no; None is Escape."""

    def __init__(self, folder: Path, answers: Sequence[str | bool | None] = (), **options: Any) -> None:
        options = {"model": "offline", "engine": "local", "enable_file_checkpointing": True, **options}
        # The tests may run as root, and some bypass permissions.
        self.options: Options[Any] = Options(cwd=folder, env=make_environment(folder, IS_SANDBOX="1"), **options)
        self.client: Client[Any] = Client(self.options)
        self.styles = Styles(attributes=False)
        self.cwd = str(folder)
        self.folders = [self.cwd, *map(str, self.options.add_dirs)]
        self.width = 80
        self.prompts: list[tuple[str, str]] = []
        self.answers = list(answers)
        self.lines: list[str] = []
        self.asked: list[str] = []
        """The titles and rows that were shown."""
        self.edited: list[str] = []
        self.switched: list[tuple[str, str | None, str | None]] = []

    async def __aenter__(self) -> Self:
        await self.client.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()
        assert self.answers == [], "not every answer was asked for"

    async def send(self, prompt: str) -> None:
        turn = await self.client.ask(prompt)
        await turn.wait()
        self.prompts.append((turn.uuid, prompt))

    async def run(self, text: str) -> str:
        """Run a command; returns what it printed."""
        found = find_command(text)
        assert found is not None
        before = len(self.lines)
        await found[0].run(self, found[1])
        return "\n".join(self.lines[before:])

    @property
    def session_id(self) -> str:
        return self.client.session_id or ""

    def print(self, lines: Sequence[str]) -> None:
        self.lines += lines

    async def edit(self, path: str) -> None:
        self.edited.append(path)

    async def choose(
        self,
        title: str,
        rows: Sequence[Row],
        *,
        search: bool = True,
        preview: Callable[[Row], str] | None = None,
    ) -> Row | None:
        self.asked += [title, *(f"{row.mark} {row.label} {row.detail}".strip() for row in rows)]
        answer = self.answers.pop(0)
        if answer is None:
            return None
        picked = next(row for row in rows if str(answer) in row.label)
        if preview is not None:
            self.asked.append(preview(picked))
        return picked

    async def ask(self, prompt: str, initial: str = "") -> str | None:
        self.asked.append(f"{prompt}{initial}")
        answer = self.answers.pop(0)
        return None if answer is None else str(answer) or initial

    async def confirm(self, question: str) -> bool:
        self.asked.append(question)
        return self.answers.pop(0) is True

    async def switch_session(self, session_id: str, *, cwd: str | None = None, at: str | None = None) -> None:
        self.switched.append((session_id, cwd, at))

    def set_theme(self, name: str) -> None:
        self.styles.theme = THEMES[name]
