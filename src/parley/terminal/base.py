"""What slash commands, the status line and completion use: the application, and other programs (`run_program`).

async def show_cost(view: View, argument: str) -> None:
    view.print(format_cost(await view.client.get_usage(), view.styles))
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from parley.sdk.errors import ClaudeSDKError
from parley.terminal.interfaces.dialogs import Picker, Row
from parley.terminal.rendering.style import THEMES, Styles
from parley.terminal.rendering.text import reveal_text, wrap

if TYPE_CHECKING:
    from parley.sdk.client import Client
    from parley.sdk.options import Options
    from parley.terminal.interfaces.live import LiveInterface
    from parley.terminal.interfaces.plain import PlainInterface
    from parley.terminal.interfaces.screen import FrameTimer
    from parley.terminal.rendering.transcript import TerminalTranscript
    from parley.terminal.session import TerminalSession
    from parley.terminal.status_line import StatusLine


class View:
    """The conversation, as far as a command may use it."""

    styles: Styles
    interface: LiveInterface | PlainInterface
    transcript: TerminalTranscript
    session: TerminalSession
    frames: FrameTimer
    status_line: StatusLine

    @property
    def client(self) -> Client[Any]:
        """The client of the session. Raises ValueError before the engine is ready."""
        if self.session.client is None:
            raise ValueError("the engine is not ready yet")
        return self.session.client

    @property
    def options(self) -> Options[Any]:
        return self.client.options

    @property
    def session_id(self) -> str:
        return self.session.target.session_id

    @property
    def cwd(self) -> str:
        return self.session.target.cwd

    @property
    def folders(self) -> Sequence[str]:
        """The working directories, `cwd` first. Programs that we start come from none of them."""
        return self.session.folders

    @property
    def prompts(self) -> Sequence[tuple[str, str]]:
        """The uuids and texts of the prompts of this conversation, oldest first."""
        return self.session.prompts

    @property
    def width(self) -> int:
        """The columns of the window."""
        return self.interface.width

    def print(self, lines: Sequence[str]) -> None:
        """Print into the scrollback lines that are safe (`rendering.text`) and fit into the width."""
        self.transcript.print("output", list(lines))
        self.frames.schedule()

    def say(self, text: str) -> None:
        """Print a text, which may have come from anywhere."""
        self.print(wrap(reveal_text(text), self.width))

    async def pick_name(self, title: str, names: Iterable[str], now: str, details: Mapping[str, str] = {}) -> str:
        """Let the person pick a name; empty after Escape."""
        rows = [Row(name, name, details.get(name, ""), "●" if name == now else " ") for name in names]
        picked = await self.choose(title, rows, search=False)
        return "" if picked is None else picked.key

    async def edit(self, path: str) -> None:
        """Open a file in the person's editor, and wait until it is closed."""
        await self.interface.edit(path, self.folders)

    async def choose(
        self,
        title: str,
        rows: Sequence[Row],
        *,
        search: bool = True,
        preview: Callable[[Row], str] | None = None,
    ) -> Row | None:
        """Let the person pick a row; None after Escape."""
        picked = await self.interface.pick(Picker(title, rows, search=search, preview=preview))
        return picked[0] if picked else None

    async def ask(self, prompt: str, initial: str = "") -> str | None:
        """Ask for one line of text; None after Escape."""
        return await self.interface.ask(prompt, initial)

    async def confirm(self, question: str) -> bool:
        """Ask a question that is answered with yes or no."""
        picked = await self.interface.pick(Picker(question, [Row("y", "Yes"), Row("n", "No")], search=False))
        return picked is not None and picked[0].key == "y"

    async def switch_session(self, session_id: str, *, cwd: str | None = None, at: str | None = None) -> None:
        """Continue another session in this terminal; with `at`, a copy of it up to this message."""
        target = self.session.target.switch(session_id, cwd)
        if at is not None:
            previous = self.session.find_previous(at)
            target = target.restart() if previous is None else target.switch(session_id, cwd, previous)
        if self.session.is_busy:
            await self.session.interrupt()
        if at is None:
            self.transcript.note(f"Session {session_id}")
        before = self.session.find_return()
        try:
            await self.session.switch(target)
        except (ClaudeSDKError, ValueError, OSError):
            await self.session.switch(before)
            self.transcript.note("The previous session continues.")
            raise
        self.print_early_warnings()
        self.changed()

    def enqueue(self, text: str) -> None:
        """Send a prompt after those that wait."""

    def toggle_thinking(self) -> None:
        """Show or hide what the model thinks."""

    def set_theme(self, name: str) -> None:
        """Change the colours, now and for the next start."""
        self.styles.theme = THEMES[name]
        self.changed()

    def changed(self) -> None:
        """Something that is shown may have changed."""

    def print_early_warnings(self) -> None:
        """Print what the engine wrote to stderr before it was ready."""


@dataclass(frozen=True)
class SessionStatus:
    """The figures of a session that a status line shows. None is unknown."""

    mode: str = "default"
    model: str = ""
    context_percent: float | None = None
    cost_usd: float | None = None
    cwd: str = ""
    branch: str = ""
    """The branch of the git repository; empty outside of one."""
    session_id: str = ""


MAX_OUTPUT_BYTES = 64_000_000


async def run_program(
    argv: Sequence[str],
    environment: Mapping[str, str],
    timeout_seconds: float,
    *,
    cwd: str | None = None,
    data: bytes = b"",
    with_errors: bool = False,
    max_bytes: int = MAX_OUTPUT_BYTES,
) -> tuple[int, bytes]:
    """Run a program with this input; returns its exit code and output. One that prints too much is stopped, with 0.

    It is a process group of its own, of which nothing is left when this returns. Raises OSError, TimeoutError.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=cwd,
        env=environment,
        stdin=PIPE,
        stdout=PIPE,
        stderr=STDOUT if with_errors else DEVNULL,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(timeout_seconds):
            with suppress(BrokenPipeError, ConnectionResetError):  # it need not read its input
                process.stdin.write(data)
                await process.stdin.drain()
            process.stdin.close()
            output = bytearray()
            while chunk := await process.stdout.read(1 << 16):
                output += chunk
                if len(output) >= max_bytes:
                    return 0, bytes(output[:max_bytes])
            return await process.wait(), bytes(output)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
