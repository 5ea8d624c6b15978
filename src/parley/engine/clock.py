"""Ids and times. They are injected, so that two runs of one script are equal."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from functools import lru_cache

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
                ready.extend(format_uuids4(os.urandom(16 * at_once)))

    return new_uuid


DIGITS = [at for at in range(36) if at not in (8, 13, 18, 23)]
"""Where the digits of a UUID stand; a dash stands between them."""
VARIANTS = bytes.maketrans(b"0123456789abcdef", b"89ab" * 4)


def format_uuids4(data: bytes) -> list[str]:
    """Random bytes, 16 for each UUID, as version 4 UUIDs. All are laid out at once, one below the other."""
    digits, count = data.hex().encode(), len(data) // 16
    text = bytearray(b"-" * 36 + b"\n") * count
    for number, at in enumerate(DIGITS):
        text[at::37] = digits[number::32]
    text[14::37] = b"4" * count
    text[19::37] = digits[16::32].translate(VARIANTS)
    return text.decode().split()


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
    return f"{format_second(whole)}.{int(part * 1000):03d}Z"


@lru_cache(maxsize=2)
def format_second(whole: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))


class SessionIdentity:
    def __init__(self, id: str) -> None:
        self.id = id
