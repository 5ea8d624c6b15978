"""One line between a client and an engine, as all parts of the inspector know it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class Direction(StrEnum):
    """As the engine sees it."""

    IN = "in"
    OUT = "out"
    ERR = "err"
    """What the engine writes to stderr."""


Record = tuple[int, float, Direction, int, Any]
"""The number, the time in seconds, the direction, the size in bytes, and the line: JSON, or text if it is not JSON."""
