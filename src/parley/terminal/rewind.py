"""Rewind to an earlier message."""

from __future__ import annotations

from parley.terminal.base import View


async def rewind(view: View) -> str | None:
    return None
