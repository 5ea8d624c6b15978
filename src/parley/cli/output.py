"""Print the result of a one-shot run as text or as one JSON document.

See also: `one_prompt.py` shows a run to a person (`is_for_person`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from parley.cli.stdio import warn, write
from parley.host import NoHost
from parley.protocol.base import Message, encode_json
from parley.protocol.messages.dialects import DIALECT_EVENTS, CallDenied
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import MODEL_SILENT, ApiRetry, Informational
from parley.protocol.options import CliOptions


def is_for_person(options: CliOptions) -> bool:
    """Whether the output is text on a terminal. `--print` is for scripts: its output is the same everywhere."""
    is_text = options.output_format in (None, "text") and options.input_format in (None, "text")
    return is_text and not options.print and options.dialect is None and not options.stdio and os.isatty(1)


def encode_lines(message: Message) -> list[bytes]:
    return [] if type(message) in DIALECT_EVENTS else [encode_json(message)]


class ResultPrinter(NoHost):
    """A `Host` that answers no requests. It prints the result when it is closed."""

    def __init__(
        self, *, as_json: bool, everything: bool, lines: Callable[[Message], list[bytes]] = encode_lines
    ) -> None:
        self._lines = lines
        """Encodes a message in the session's dialect."""
        self._as_json = as_json
        self._everything = as_json and everything
        self._messages: list[Message] = []
        self._printing = threading.Lock()
        self._printed: bool | None = None
        self._last: Result | None = None

    def send(self, *messages: Message) -> None:
        if self._everything:
            self._messages += messages
        for message in messages:
            self._note(message)

    def _note(self, message: Message) -> None:
        if isinstance(message, Result):
            # A finished background task may start another turn with its own result; the last one is printed.
            self._last = message
        elif isinstance(message, ApiRetry):
            from parley.sdk.runtime.wording import failure_reason, retry_text  # few calls fail

            warn(f"the model call failed ({failure_reason(message)}); {retry_text(message)}")
        elif isinstance(message, Informational) and message.tag == MODEL_SILENT and not self._as_json:
            warn(message.content)
        elif isinstance(message, CallDenied) and not self._as_json:
            from parley.terminal.rendering.requests import denial_text  # few calls are denied

            warn(denial_text(message))

    @property
    def waits_for_all(self) -> bool:
        """Whether messages after the last result are printed too."""
        return self._everything

    def close(self) -> bool:
        """Print the document, once; returns whether that succeeded.

        It blocks until the reader has read everything, so do not call it from an event loop.
        """
        with self._printing:
            if self._printed is None:
                self._printed = self._print()
            return self._printed

    def _print(self) -> bool:
        if self._last is None:
            return True
        if self._everything:
            lines = [line for message in self._messages for line in self._lines(message)]
            return write(b"[" + b",".join(lines) + b"]\n")
        if self._as_json:
            return write(b"".join(line + b"\n" for line in self._lines(self._last)))
        from parley.sdk.runtime.wording import text_of  # not for streams

        return write(text_of(self._last).encode(errors="replace") + b"\n")
