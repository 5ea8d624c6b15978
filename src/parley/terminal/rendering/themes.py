"""The colours of the terminal, as SGR codes of the sixteen named colours, which every terminal has. Pure."""

from __future__ import annotations

from dataclasses import dataclass


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
