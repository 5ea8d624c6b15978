"""Which session this is. `/clear` begins another one in the same process, so the id can change."""

from __future__ import annotations


class SessionIdentity:
    def __init__(self, id: str) -> None:
        self.id = id
