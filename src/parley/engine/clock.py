"""Ids and times. They are injected, so that two runs of one script are equal."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable

from msgspec import field
from msgspec.structs import replace

from parley.protocol.base import UNSET, Message, Struct


def random_uuids(at_once: int = 64) -> Callable[[], str]:
    """Generates version 4 UUIDs; thread-safe.

    Every stream event has one, so random bytes are read in batches. That takes less than half the time of `uuid.uuid4`.
    """
    ready: list[str] = []

    def new_uuid() -> str:
        while True:
            try:
                return ready.pop()
            except IndexError:
                many = os.urandom(16 * at_once).hex()
                ready.extend(format_uuid4(many[start : start + 32]) for start in range(0, len(many), 32))

    return new_uuid


def format_uuid4(digits: str) -> str:
    """32 random hex digits as a version 4 UUID."""
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


async def sleep(seconds: float) -> None:
    # Importing asyncio takes 20 ms, which callers that need only ids and times save.
    import asyncio

    await asyncio.sleep(seconds)


class Clock(Struct, frozen=True):
    """The source of ids and times."""

    new_uuid: Callable[[], str] = field(default_factory=random_uuids)
    seconds: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = sleep

    def new_short_id(self) -> str:
        """An id that is short enough for names the model reads."""
        return self.new_uuid().replace("-", "")[-24:]

    def now(self) -> str:
        """UTC with milliseconds, as on the wire."""
        return format_iso(self.seconds())

    def stamp_message(self, message: Message, session_id: str) -> Message:
        """The message with a session id and a uuid, if it has unset fields for them."""
        missing = {}
        if getattr(message, "session_id", None) is UNSET:
            missing["session_id"] = session_id
        if getattr(message, "uuid", None) is UNSET:
            missing["uuid"] = self.new_uuid()
        return replace(message, **missing) if missing else message


def format_iso(seconds: float) -> str:
    whole, part = divmod(seconds, 1)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{int(part * 1000):03d}Z"
