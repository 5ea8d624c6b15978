"""What a person, or a script that wants no stream, sees: the final text, or one JSON object."""

from __future__ import annotations

import os
import sys
from typing import Any

from parley.host import HostGone
from parley.protocol.base import Message, spell
from parley.protocol.messages.requests import Request
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import ApiRetry


class Printer:
    """A host that can read but not answer."""

    def __init__(self, *, as_json: bool, everything: bool) -> None:
        self._as_json = as_json
        self._everything = as_json and everything
        self._said: list[Message] = []

    def tell(self, message: Message) -> None:
        if self._everything:
            self._said.append(message)
        if isinstance(message, Result):
            self._print(message)
        elif isinstance(message, ApiRetry) and not self._as_json:
            wait_seconds = message.retry_delay_ms / 1000
            sys.stderr.write(f"the model call failed ({message.error}); trying again in {wait_seconds:.1f} s\n")

    async def ask(self, request: Request) -> Any:
        raise HostGone("nobody can be asked in a one-shot run")

    def _print(self, result: Result) -> None:
        if self._everything:
            write(sys.stdout.fileno(), b"[" + b",".join(spell(message) for message in self._said) + b"]\n")
        elif self._as_json:
            write(sys.stdout.fileno(), spell(result) + b"\n")
        elif result.is_error is True:
            write(sys.stderr.fileno(), text_of(result).encode() + b"\n")
        else:
            write(sys.stdout.fileno(), text_of(result).encode() + b"\n")


def text_of(result: Result) -> str:
    if isinstance(result.result, str):
        return result.result
    return "\n".join(result.errors) if isinstance(result.errors, list) else result.subtype


def write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    try:
        while left:
            left = left[os.write(descriptor, left) :]
    except BrokenPipeError:
        pass
