"""Print the result of a one-shot run as text or as one JSON document.

See also: `terminal/` shows a run to a person (`is_for_person`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from parley.cli.stdio import warn, write
from parley.host import HostGone
from parley.protocol.base import Json, Message, encode_json
from parley.protocol.messages.control import ControlRequest
from parley.protocol.messages.dialects import DIALECT_EVENTS, CallDenied
from parley.protocol.messages.requests import Request
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import ApiRetry
from parley.protocol.options import CliOptions
from parley.settings.base import printable


def is_for_person(options: CliOptions) -> bool:
    """Whether the output is text on a terminal. `--print` is for scripts: its output is the same everywhere."""
    is_text = options.output_format in (None, "text") and options.input_format in (None, "text")
    return is_text and not options.print and options.dialect is None and not options.stdio and os.isatty(1)


def encode_lines(message: Message) -> list[bytes]:
    return [] if type(message) in DIALECT_EVENTS else [encode_json(message)]


def denial_text(denial: CallDenied) -> str:
    """Describe a denied call in one line, with the flags that would have allowed it."""
    from parley.models.redaction import Redactor  # few calls are denied
    from parley.permissions.rule import split_alternatives
    from parley.sdk.runtime.wording import MAX_REASON_CHARS

    redact = Redactor().redact_text
    about, reason = printable(redact(denial.about)), printable(redact(denial.reason), MAX_REASON_CHARS)
    alternatives = [
        " ".join(flag for update in group for flag in update_flags(update))
        for group in split_alternatives(denial.suggestions)
    ]
    flags = " or ".join(filter(None, alternatives))
    # Flags that cannot be copied as they are shown are left out.
    advice = f" To allow it: {flags}" if flags and flags == printable(redact(flags), MAX_REASON_CHARS) else ""
    return f"denied: {denial.tool_name}{f' ({about})' if about else ''}: {reason}{advice}"


def update_flags(update: Json) -> list[str]:
    """The flags that have the effect of a permission update from the start."""
    from shlex import quote

    from parley.permissions.rule import format_rule

    match update:
        case {"type": "addRules", "behavior": "allow", "rules": rules}:
            return [
                "--allowedTools",
                *(quote(format_rule(rule["toolName"], rule.get("ruleContent"))) for rule in rules),
            ]
        case {"type": "addDirectories", "directories": folders}:
            return [part for folder in folders for part in ("--add-dir", quote(folder))]
        case {"type": "setMode", "mode": mode}:
            return ["--permission-mode", quote(mode)]
    return []


class ResultPrinter:
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
        elif isinstance(message, ApiRetry) and not self._as_json:
            from parley.sdk.runtime.wording import failure_reason, retry_text  # few calls fail

            warn(f"the model call failed ({failure_reason(message)}); {retry_text(message)}")
        elif isinstance(message, CallDenied) and not self._as_json:
            warn(denial_text(message))

    async def request(self, request: Request, request_id: str | None = None) -> Any:
        raise HostGone("this run has no client that could answer")

    async def drain(self) -> bool:
        return True

    def pending_requests(self) -> list[ControlRequest]:
        return []

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
