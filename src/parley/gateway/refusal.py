"""Why something that a client asked for is not done."""

from __future__ import annotations


class Refusal(Exception):
    """A request or a line of a client that is refused. `code` is one of `http/errors.py`."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
