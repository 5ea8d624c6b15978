"""Styles for terminal text: SGR sequences, or none.

    style = Styles(color=True)
    style.dim("2 turns") -> "\\x1b[2m2 turns\\x1b[0m"

A theme has codes of the sixteen named colours, which every terminal has. `NO_COLOR` turns colours off and leaves bold,
dim and italic; a terminal that is `dumb` gets no sequences at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RESET = "\x1b[0m"


@dataclass(frozen=True)
class Theme:
    """The codes of one set of colours. An empty code leaves the text as it is."""

    name: str
    code: str = "36"
    good: str = "32"
    bad: str = "1;31"
    warning: str = "33"
    accent: str = "35"
    added: str = "32"
    removed: str = "31"


DARK = Theme("dark")
THEMES = {
    theme.name: theme
    for theme in (
        DARK,
        Theme("light", code="34", warning="35", accent="34"),
        Theme("high-contrast", code="96", good="92", bad="1;91", warning="93", accent="95", added="92", removed="91"),
        Theme("color-blind", code="36", good="34", bad="1;33", warning="33", accent="36", added="34", removed="33"),
        Theme("plain", code="", good="", bad="1", warning="", accent="", added="", removed=""),
    )
}
"""The themes by name, the default first. `plain` has no colours."""


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
