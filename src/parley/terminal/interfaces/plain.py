"""A conversation line by line, without live lines: for terminals that cannot move the cursor, and screen readers.

Everything is printed once, in the order in which it happens. The terminal edits the line that is typed. Questions list
their choices; the person types the key of one.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from parley.settings.secret_variables import without_secrets
from parley.terminal.interfaces.dialogs import Picker, Row
from parley.terminal.interfaces.screen import terminal_size
from parley.terminal.rendering.text import reveal_line
from parley.workspace.search_path import environment_for

if TYPE_CHECKING:
    from parley.terminal.application import ConversationApplication

PROMPT = "> "


class PlainInterface:
    def __init__(self, actions: ConversationApplication, environment: Mapping[str, str]) -> None:
        self._actions = actions
        self._editor = environment.get("VISUAL") or environment.get("EDITOR") or "vi"
        self._asked: asyncio.Future[str | None] | None = None
        self._rest = b""
        self._closed: asyncio.Event | None = None
        self._has_prompt = False
        """Whether the prompt is the last thing on the screen."""

    # Lines that are typed.

    async def run(self, on_start: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self._closed = asyncio.Event()
        os.set_blocking(0, False)
        loop.add_reader(0, self._receive)
        loop.add_signal_handler(2, self._actions.cancel)
        try:
            on_start()
            self._show_prompt()
            await self._closed.wait()
        finally:
            loop.remove_reader(0)
            loop.remove_signal_handler(2)
            with suppress(OSError):
                os.set_blocking(0, True)

    def _receive(self) -> None:
        try:
            data = os.read(0, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._take(None)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line.decode(errors="replace"))

    def _take(self, line: str | None) -> None:
        self._has_prompt = self._has_prompt and line is None
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(line)
        elif line is None:
            self._actions.leave()
        else:
            self._actions.submit(line)

    def _show_prompt(self) -> None:
        if self._closed is not None and not self._closed.is_set() and not self._has_prompt:
            self._has_prompt = True
            self._write(PROMPT)

    def _write(self, text: str) -> None:
        with suppress(OSError):
            sys.stdout.write(text)
            sys.stdout.flush()

    # The interface.

    @property
    def width(self) -> int:
        return terminal_size()[0]

    @property
    def input_text(self) -> str:
        return ""

    def set_input(self, text: str) -> None:
        self.print([f"The message was: {reveal_line(text)}"])

    def insert_text(self, text: str) -> None:
        return

    def clear_input(self) -> None:
        return

    def alert(self, text: str, *, is_silent: bool) -> None:
        return

    def copy(self, encoded: str) -> bool:
        return False

    def set_vi(self, is_on: bool) -> None:
        return

    def print(self, lines: Sequence[str]) -> None:
        start = "\n" if self._has_prompt else ""
        self._has_prompt = False
        self._write(start + "".join(f"{line}\n" for line in lines))

    def draw(self) -> None:
        if self._asked is None and self._actions.is_idle:
            self._show_prompt()

    def close(self) -> None:
        if self._closed is not None:
            self._closed.set()

    def take_pending(self) -> list[str]:
        return [""] if self._has_prompt else []

    async def pick(self, picker: Picker) -> list[Row] | None:
        """List the rows with their keys, or numbers, and read one of them; an empty line cancels."""
        rows, several = picker.rows, picker.several
        has_keys = not picker.search and all(len(row.key) == 1 for row in rows)
        keyed = {row.key if has_keys else str(number): row for number, row in enumerate(rows, 1)}
        listed = [
            f"  {key}: {reveal_line(row.label)}{f' ({reveal_line(row.detail)})' if row.detail else ''}"
            for key, row in keyed.items()
        ]
        self.print([*([reveal_line(picker.title)] if picker.title else []), *listed])
        what = "keys" if several else "key"
        while True:
            line = await self.ask(f"{what} (empty cancels): ")
            if not line:
                return None
            words = line.replace(",", " ").lower().split()
            if words and all(word in keyed for word in words) and (several or len(words) == 1):
                return [keyed[word] for word in words]
            self.print([f"  There is no {reveal_line(line)!r}: type one of {', '.join(keyed)}."])

    async def ask(self, prompt: str, initial: str = "") -> str | None:
        while self._asked is not None:  # one question at a time
            await asyncio.wait([self._asked])
        self.print([])
        self._write(f"{prompt}[{reveal_line(initial)}] " if initial else prompt)
        self._asked = asyncio.get_running_loop().create_future()
        try:
            line = await self._asked
        finally:
            self._asked = None
        return initial if line == "" and initial else line

    async def wait_for_pause(self) -> None:
        return

    async def edit(self, path: str, folders: Sequence[str]) -> None:
        environment = environment_for(self._editor, without_secrets(os.environ), folders)
        process = await asyncio.create_subprocess_exec(*shlex.split(self._editor), path, env=environment)
        await process.wait()
