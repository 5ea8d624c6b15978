"""What a conversation needs of a terminal: `screen.py` implements it with live lines, `plain.py` line by line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from parley.terminal.base import Row
from parley.terminal.interfaces.picker import Picker


class Actions(Protocol):
    """What the keys do, and what the live lines show."""

    def submit(self, text: str) -> None: ...
    def escape(self) -> None: ...
    def cancel(self) -> None: ...
    def end_of_input(self) -> None: ...
    def cycle_mode(self) -> None: ...
    def expand_output(self) -> None: ...
    def expand_thinking(self) -> None: ...
    def search_history(self) -> None: ...
    def fold_paste(self, text: str) -> str: ...
    def paste_image(self) -> None: ...
    def edit_prompt(self) -> None: ...
    def take_back(self) -> str | None: ...
    def live_lines(self) -> list[str]: ...
    def queue_lines(self) -> list[str]: ...
    def status_lines(self, columns: int) -> list[str]: ...

    @property
    def is_idle(self) -> bool:
        """Whether the next prompt would be sent at once."""


class Interface(Protocol):
    """A terminal."""

    @property
    def width(self) -> int: ...

    @property
    def input_text(self) -> str:
        """What is typed and not sent."""

    def set_input(self, text: str) -> None: ...

    def insert_text(self, text: str) -> None:
        """Add text where the cursor is."""

    def clear_input(self) -> None: ...

    def set_vi(self, is_on: bool) -> None:
        """Edit the input with the keys of vi."""

    def print(self, lines: Sequence[str]) -> None:
        """Print lines with the next frame."""

    def draw(self) -> None:
        """Draw a frame, with the lines that were printed since the last."""

    async def run(self, on_start: Callable[[], None]) -> None:
        """Read keys until `close`."""

    def close(self) -> None: ...

    def take_pending(self) -> list[str]:
        """The lines that were not printed before the end."""

    async def pick(self, picker: Picker) -> list[Row] | None:
        """Let the person pick; None after Escape."""

    async def ask(self, prompt: str, initial: str = "") -> str | None:
        """Ask for a line of text; None after Escape."""

    async def wait_for_pause(self) -> None:
        """Wait while a prompt is being typed, so that a key for it does not answer a question."""

    async def edit(self, path: str, folders: Sequence[str]) -> None:
        """Open a file in the person's editor, which is in none of the folders, and wait until it is closed."""
