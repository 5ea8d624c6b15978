"""A sign of life while a tool runs long, so that a host can tell a slow call from a dead engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from parley.protocol.base import Message
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.notices import ToolProgress

EVERY_SECONDS = 30


class Heartbeat:
    """`with Heartbeat(tell, call):` tells every half minute that the call still runs."""

    def __init__(self, tell: Callable[[Message], None], call: ToolUse, every_seconds: float = EVERY_SECONDS) -> None:
        self._tell = tell
        self._call = call
        self._every_seconds = every_seconds
        self._beats = 0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._wind_up()

    def __exit__(self, *exception: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wind_up(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._every_seconds, self._beat)

    def _beat(self) -> None:
        self._tell(
            ToolProgress(
                tool_use_id=f"{self._call.id}-heartbeat-{self._beats}",
                tool_name=self._call.name,
                parent_tool_use_id=self._call.id,
                elapsed_time_seconds=self._every_seconds * (self._beats + 1),
                heartbeat=True,
            )
        )
        self._beats += 1
        self._wind_up()
