"""Ids and times: what makes two runs of the same script differ, and therefore comes in from outside."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from msgspec.structs import replace

from parley.protocol.base import UNSET, Message, Struct


def random_uuid() -> str:
    """A version 4 UUID; the standard library's module costs 8 ms at start-up."""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


class Stamp(Struct, frozen=True):
    """Gives out ids and the time."""

    new_uuid: Callable[[], str] = random_uuid
    seconds: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic

    def now(self) -> str:
        """UTC with milliseconds, as every line spells it."""
        return iso(self.seconds())

    def on(self, message: Message, session_id: str) -> Message:
        """The message with the session's id and an id of its own, where it has fields for them and lacks them."""
        missing = {}
        if getattr(message, "session_id", None) is UNSET:
            missing["session_id"] = session_id
        if getattr(message, "uuid", None) is UNSET:
            missing["uuid"] = self.new_uuid()
        return replace(message, **missing) if missing else message


def iso(seconds: float) -> str:
    whole, part = divmod(seconds, 1)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{int(part * 1000):03d}Z"
