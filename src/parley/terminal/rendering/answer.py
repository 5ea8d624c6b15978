"""The answer of the model while it arrives: what is finished is printed for good, the rest is shown live.

    answer.feed("Hel")
    answer.take()            -> the lines that will not change any more, each once
    answer.open_lines()      -> how the rest looks now
    answer.finish()          -> the lines of the rest

`MarkdownAnswer` (markdown.py) formats it. `PlainAnswer` is for an installation without the extra `tui`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from parley.terminal.rendering.text import reveal_text, wrap


class Answer(Protocol):
    def feed(self, text: str) -> None: ...
    def take(self) -> list[str]: ...
    def open_lines(self) -> list[str]: ...
    def finish(self) -> list[str]: ...


class PlainAnswer:
    """The text as it is, line by line."""

    def __init__(self, width: Callable[[], int]) -> None:
        self._width = width
        self._rest = ""

    def feed(self, text: str) -> None:
        self._rest += text

    def take(self) -> list[str]:
        finished, newline, self._rest = self._rest.rpartition("\n")
        return reveal_text(finished).split("\n") if newline else []

    def open_lines(self) -> list[str]:
        return wrap(reveal_text(self._rest), self._width()) if self._rest else []

    def finish(self) -> list[str]:
        rest, self._rest = self._rest, ""
        return reveal_text(rest).split("\n") if rest else []
