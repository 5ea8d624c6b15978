"""Detect that stdout has no reader any more, without writing.

    watch = ReaderWatch(1, on_gone)     # the loop calls on_gone() once, when the last reader closed its end
    watch.close()

A pipe reports it as POLLERR, a socket whose peer closed both directions as POLLHUP. Files, devices and terminals are
not watched.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
from collections.abc import Callable

from parley._launched import end_if_killed

POLL_SECONDS = 0.25
"""How often the descriptor is polled without epoll."""


class ReaderWatch:
    def __init__(self, descriptor: int, on_gone: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._errors = None
        mode = os.fstat(descriptor).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            return
        if hasattr(select, "epoll"):
            # A separate epoll set without events: only errors and hang-ups make it readable.
            self._errors = select.epoll()
            self._errors.register(descriptor, 0)
            self._loop.add_reader(self._errors.fileno(), self._report)
        else:
            self._poll()

    def close(self) -> None:
        if self._errors is not None:
            self._loop.remove_reader(self._errors.fileno())
            self._errors.close()
            self._errors = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _report(self) -> None:
        end_if_killed()
        self.close()
        self._on_gone()

    def _poll(self) -> None:
        if has_reader(self._descriptor):
            self._timer = self._loop.call_later(POLL_SECONDS, self._poll)
        else:
            self._report()


def has_reader(descriptor: int) -> bool:
    """Whether the other end of a pipe or socket is open."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return not poll.poll(0)
