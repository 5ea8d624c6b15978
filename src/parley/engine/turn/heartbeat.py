"""Heartbeats while a tool or the model takes long, so that a client can tell a slow engine from a dead one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from parley.protocol.base import Message
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.notices import ToolProgress
from parley.protocol.messages.system import Status

INTERVAL_SECONDS = 30
CHECKS_PER_INTERVAL = 3
"""How often the timer checks within the longest silence."""


class Ticker:
    """`with Ticker(callback):` calls `callback` at every interval; never if `every_seconds` is None."""

    def __init__(self, callback: Callable[[], None], every_seconds: float | None = INTERVAL_SECONDS) -> None:
        self._callback = callback
        self._every_seconds = every_seconds
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._schedule()

    def __exit__(self, *exception: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        if self._every_seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(self._every_seconds, self._tick)

    def _tick(self) -> None:
        self._callback()
        self._schedule()


def keep_alive(send: Callable[[Message], None], every_seconds: float | None) -> Ticker:
    """Sends a heartbeat while the turn waits for a hook or a server, and not for the model or a tool."""
    return Ticker(lambda: send(Status(status=None)), every_seconds)


class IdleTimer(Ticker):
    """`with idle_timer:` sends `status: requesting` when nothing was sent for long.

    Old clients accept this message, too. A sender sets `checks` to 0, which costs less than the time of every message.
    """

    def __init__(self, send: Callable[[Message], None], max_seconds: float | None) -> None:
        super().__init__(self._check, None if max_seconds is None else max_seconds / CHECKS_PER_INTERVAL)
        self._send = send
        self.checks = 0
        """Checks since the last message was sent."""

    def __enter__(self) -> None:
        self.checks = 0
        super().__enter__()

    def _check(self) -> None:
        self.checks += 1
        if self.checks == CHECKS_PER_INTERVAL:
            self.checks = 0
            self._send(Status(status="requesting"))


class ToolHeartbeat(Ticker):
    """`with ToolHeartbeat(send, call):` reports at every interval that the call still runs."""

    def __init__(
        self, send: Callable[[Message], None], call: ToolUse, every_seconds: float | None = INTERVAL_SECONDS
    ) -> None:
        super().__init__(self._send_progress, every_seconds)
        self._send = send
        self._tool_use = call
        self._beats = 0

    def _send_progress(self) -> None:
        call, beat = self._tool_use, self._beats
        self._beats += 1
        self._send(
            ToolProgress(
                tool_use_id=f"{call.id}-heartbeat-{beat}",
                tool_name=call.name,
                parent_tool_use_id=call.id,
                elapsed_time_seconds=(self._every_seconds or 0) * self._beats,
                heartbeat=True,
            )
        )
