"""What a person, or a script that wants no stream, sees: the final text, or one JSON object."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from parley.cli.stdio import complain, write
from parley.host import HostGone
from parley.protocol.base import Message, spell
from parley.protocol.messages.control import ControlRequest
from parley.protocol.messages.dialects import NOTES
from parley.protocol.messages.requests import Request
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import ApiRetry


def canonical(message: Message) -> list[bytes]:
    return [] if type(message) in NOTES else [spell(message)]


def why(failure: ApiRetry) -> str:
    """Without a status there was no answer, or none to its end; `server_error` would blame who never heard of us."""
    if failure.error_status is None:
        return "no whole answer came from the server"
    return f"{failure.error}, status {failure.error_status}"


def next_try(failure: ApiRetry) -> str:
    return f"trying again in {failure.retry_delay_ms / 1000:.1f} s ({failure.attempt} of {failure.max_retries})"


class Printer:
    """A host that can read but not answer. What it was told is printed when it is closed."""

    def __init__(self, *, as_json: bool, everything: bool, lines: Callable[[Message], list[bytes]] = canonical) -> None:
        self._lines = lines
        """How a message is spelled."""
        self._as_json = as_json
        self._everything = as_json and everything
        self._said: list[Message] = []
        self._printing = threading.Lock()
        self._printed: bool | None = None
        self._last: Result | None = None

    def tell(self, message: Message) -> None:
        if self._everything:
            self._said.append(message)
        if isinstance(message, Result):
            # A background task that ends may cause another turn, with a result of its own: the last one counts.
            self._last = message
        elif isinstance(message, ApiRetry) and not self._as_json:
            complain(f"the model call failed ({why(message)}); {next_try(message)}")

    async def ask(self, request: Request, request_id: str | None = None) -> Any:
        raise HostGone("nobody can be asked in a one-shot run")

    async def reached(self) -> bool:
        return True

    def pending(self) -> list[ControlRequest]:
        return []

    @property
    def waits_for_all(self) -> bool:
        """Whether also what is told behind the last result is printed."""
        return self._everything

    def close(self) -> bool:
        """Print the one document there is to print, unless that was done; whether that went well.

        It may take as long as the reader likes, so no event loop must be waiting for it.
        """
        with self._printing:
            if self._printed is None:
                self._printed = self._print()
            return self._printed

    def _print(self) -> bool:
        if self._last is None:
            return True
        if self._everything:
            lines = [line for message in self._said for line in self._lines(message)]
            return write(b"[" + b",".join(lines) + b"]\n")
        if self._as_json:
            return write(b"".join(line + b"\n" for line in self._lines(self._last)))
        return write(text_of(self._last).encode(errors="replace") + b"\n", 2 if self._last.is_error is True else 1)


def text_of(result: Result) -> str:
    if isinstance(result.result, str):
        return result.result
    return "\n".join(result.errors) if isinstance(result.errors, list) else result.subtype
