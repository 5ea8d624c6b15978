"""Styles for terminal text: SGR sequences, or none.

    style = Styles(color=True)
    style.dim("2 turns") -> "\\x1b[2m2 turns\\x1b[0m"

`NO_COLOR` turns colours off and leaves bold, dim and italic; a terminal that is `dumb` gets no sequences at all.
"""

from __future__ import annotations

from collections.abc import Mapping

RESET = "\x1b[0m"


class Styles:
    def __init__(self, *, attributes: bool = True, color: bool = True) -> None:
        self.has_attributes = attributes
        self.has_color = attributes and color

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Styles:
        return cls(attributes=not is_dumb(environment), color=not environment.get("NO_COLOR"))

    def _wrap(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}{RESET}" if text and self.has_attributes else text

    def _paint(self, code: str, text: str) -> str:
        return self._wrap(code, text) if self.has_color else text

    def bold(self, text: str) -> str:
        return self._wrap("1", text)

    def dim(self, text: str) -> str:
        return self._wrap("2", text)

    def code(self, text: str) -> str:
        return self._paint("36", text)

    def good(self, text: str) -> str:
        return self._paint("32", text)

    def bad(self, text: str) -> str:
        return self._wrap("1;31" if self.has_color else "1", text)

    def warning(self, text: str) -> str:
        return self._paint("33", text)


def is_dumb(environment: Mapping[str, str]) -> bool:
    """Whether the terminal knows no escape sequences."""
    return environment.get("TERM", "") in ("", "dumb")
