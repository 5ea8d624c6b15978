"""What a check of `parley doctor` reports."""

from __future__ import annotations

from typing import Literal

from parley.protocol.base import Struct

Level = Literal["ok", "warning", "error"]


class Check(Struct, frozen=True):
    """One finding. An error keeps a session from working; a warning does not."""

    name: str
    level: Level
    detail: str
