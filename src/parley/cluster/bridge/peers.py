"""Notices when the other end of streams is gone.

Each end says in `Alive`, twice a second, which streams it has with the other and how many frames it has sent on each.
Messages of one sender arrive in order, so a frame that has not arrived by then is lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Protocol, TypeVar

from parley.cluster.bridge.messages import SILENT_SECONDS, Alive
from parley.protocol.base import Struct


class Watched(Protocol):
    """A stream, as its end knows it."""

    stream: str
    peer: str
    """The inbox of the other end."""

    @property
    def received(self) -> int:
        """How many frames have come."""


Stream = TypeVar("Stream", bound=Watched)


class _Seen(Struct):
    opened_at: float
    is_listed: bool = False
    """Whether the other end has named the stream. A message that was sent before it was opened does not."""


class Peers:
    """The other ends of all streams of a process."""

    def __init__(self) -> None:
        self._heard_at: dict[str, float] = {}
        self._seen: dict[str, _Seen] = {}

    def add(self, stream: Watched) -> None:
        now = time.monotonic()
        self._heard_at[stream.peer] = now
        self._seen[stream.stream] = _Seen(now)

    def forget(self, stream: Watched) -> None:
        self._seen.pop(stream.stream, None)

    def hear(self, alive: Alive, streams: Iterable[Stream]) -> list[Stream]:
        """Take note of a sign of life; returns the streams that the sender does not have, or that have lost frames."""
        now = time.monotonic()
        self._heard_at[alive.inbox] = now
        lost = []
        for stream in streams:
            seen = self._seen.get(stream.stream)
            if stream.peer != alive.inbox or seen is None:
                continue
            sent = alive.streams.get(stream.stream)
            if sent is not None:
                seen.is_listed = True
            if (sent is None and (seen.is_listed or stream.received or now - seen.opened_at > SILENT_SECONDS)) or (
                sent is not None and sent > stream.received
            ):
                lost.append(stream)
        return lost

    def find_silent(self, streams: Iterable[Stream]) -> list[Stream]:
        """The streams whose other end has not been heard for too long."""
        oldest = time.monotonic() - SILENT_SECONDS
        silent = {peer for peer, at in self._heard_at.items() if at < oldest}
        lost = [stream for stream in streams if stream.peer in silent]
        for peer in silent:
            del self._heard_at[peer]
        return lost


def list_sent(streams: Iterable[tuple[str, str, int]]) -> dict[str, dict[str, int]]:
    """By peer: how many frames were sent on each stream. `streams`: peer, stream, count."""
    found: dict[str, dict[str, int]] = {}
    for peer, stream, count in streams:
        found.setdefault(peer, {})[stream] = count
    return found
