"""A person at the commands of the terminal: a real client, and answers that are given in advance.

async with PersonView(folder, "say hi", answers=["Find", None]) as view:
    await run_command(view, "/resume")
    assert "..." in view.text
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from parley import Client, Options
from parley.terminal.base import View
from parley.terminal.commands import find_command
from parley.terminal.interfaces.dialogs import Picker, Row
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.transcript import TerminalTranscript
from tests.helpers.terminal import make_environment


class PersonView(View):
    """A view whose person answers in advance.

    An answer picks the first row whose label contains it, is typed, or is yes or no; None is Escape.
    """

    def __init__(self, folder: Path, answers: Sequence[str | bool | None] = (), **options: Any) -> None:
        options = {"model": "offline", "engine": "local", "enable_file_checkpointing": True, **options}
        # The tests may run as root, and some bypass permissions.
        wanted: Options[Any] = Options(cwd=folder, env=make_environment(folder, IS_SANDBOX="1"), **options)
        folders = [str(folder), *map(str, wanted.add_dirs)]
        self.sent: list[tuple[str, str]] = []
        target = SimpleNamespace(cwd=str(folder))
        session: Any = SimpleNamespace(client=Client(wanted), target=target, prompts=self.sent, mode="default")
        session.folders = folders
        session.note_folder = folders.append
        person: Any = self
        self.session = session
        self.interface = person
        self.styles = Styles(attributes=False)
        self.answers = list(answers)
        self.lines: list[str] = []
        self.transcript = TerminalTranscript(self.lines.extend, self.styles, lambda: self.width, lambda: 0.0)
        session.client.watchers.append(self.transcript.show)
        self.status_line = SimpleNamespace(restart=lambda: None)  # type: ignore[assignment]
        self.typed = ""
        """What a command put into the input."""
        self.queued: list[str] = []
        self.copied = ""
        self.is_vi = False
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
        self.sent.append((turn.uuid, prompt))

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

    @property
    def width(self) -> int:
        return 80

    def set_input(self, text: str) -> None:
        self.typed = text

    def enqueue(self, text: str) -> None:
        self.queued.append(text)

    def copy(self, encoded: str) -> bool:
        self.copied = b64decode(encoded).decode()
        return True

    def set_vi(self, is_on: bool) -> None:
        self.is_vi = is_on

    async def edit(self, path: str) -> None:
        self.edited.append(path)

    async def pick(self, picker: Picker) -> list[Row] | None:
        answer = self.answers.pop(0)
        if isinstance(answer, bool):
            self.asked.append(picker.title)
            answer = "Yes" if answer else "No"
        else:
            self.asked += [picker.title, *(f"{row.mark} {row.label} {row.detail}".strip() for row in picker.rows)]
        if answer is None:
            return None
        picked = next(row for row in picker.rows if answer in row.label)
        if picker.preview is not None:
            self.asked.append(picker.preview(picked))
        return [picked]

    async def ask(self, prompt: str, initial: str = "") -> str | None:
        self.asked.append(f"{prompt}{initial}")
        answer = self.answers.pop(0)
        return None if answer is None else str(answer) or initial

    async def switch_session(self, session_id: str, *, cwd: str | None = None, at: str | None = None) -> None:
        self.switched.append((session_id, cwd, at))
