"""Styles for terminal text: SGR sequences, or none.

    style = Styles(color=True)
    style.dim("2 turns") -> "\\x1b[2m2 turns\\x1b[0m"

`NO_COLOR` turns colours off and leaves bold, dim and italic; a terminal that is `dumb` gets no sequences at all.
"""

from __future__ import annotations

from collections.abc import Mapping

from parley.terminal.rendering.themes import DARK, Theme

RESET = "\x1b[0m"


class Styles:
    def __init__(self, *, attributes: bool = True, color: bool = True, theme: Theme = DARK) -> None:
        self.theme = theme
        self.has_attributes = attributes
        self.has_color = attributes and color

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Styles:
        return cls(attributes=not is_dumb(environment), color=not environment.get("NO_COLOR"))

    def _wrap(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}{RESET}" if text and self.has_attributes else text

    def _paint(self, code: str, text: str) -> str:
        return self._wrap(code, text) if self.has_color and code else text

    def bold(self, text: str) -> str:
        return self._wrap("1", text)

    def dim(self, text: str) -> str:
        return self._wrap("2", text)

    def reverse(self, text: str) -> str:
        return self._wrap("7", text)

    def code(self, text: str) -> str:
        return self._paint(self.theme.code, text)

    def good(self, text: str) -> str:
        return self._paint(self.theme.good, text)

    def bad(self, text: str) -> str:
        return self._wrap(self.theme.bad if self.has_color else "1", text)

    def warning(self, text: str) -> str:
        return self._paint(self.theme.warning, text)

    def accent(self, text: str) -> str:
        return self._paint(self.theme.accent, text)

    def added(self, text: str) -> str:
        return self._paint(self.theme.added, text)

    def removed(self, text: str) -> str:
        return self._paint(self.theme.removed, text)


def is_dumb(environment: Mapping[str, str]) -> bool:
    """Whether the terminal knows no escape sequences."""
    return environment.get("TERM", "") in ("", "dumb")
