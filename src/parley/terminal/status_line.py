"""The status line."""

from __future__ import annotations

from collections.abc import Callable

from parley.terminal.base import SessionStatus, View
from parley.terminal.rendering.text import reveal_line, shorten


class StatusLine:
    def __init__(self, view: View, refresh: Callable[[], None]) -> None:
        self._view = view
        self._status = SessionStatus()

    def update(self, status: SessionStatus) -> None:
        self._status = status

    def render(self, columns: int) -> list[str]:
        status = self._status
        context = "" if status.context_percent is None else f" · {status.context_percent:.0f}% context"
        cost = "" if status.cost_usd is None else f" · ${status.cost_usd:.4f}"
        text = reveal_line(f"{status.mode} · {status.model}{context}{cost}")
        return [self._view.styles.dim(shorten(text, columns))]

    async def close(self) -> None: ...
