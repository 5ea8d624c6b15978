"""A sign of life while a tool or the model takes long, so that a host can tell a slow one from a dead engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from parley.protocol.base import Message
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.notices import ToolProgress
from parley.protocol.messages.system import Status

if TYPE_CHECKING:
    from parley.engine.context.conversation import Conversation

EVERY_SECONDS = 30
LOOKS = 3
"""So often in the longest silence."""


class Pulse:
    """`with Pulse(beat):` calls `beat` every half minute; never if `every_seconds` is None."""

    def __init__(self, beat: Callable[[], None], every_seconds: float | None = EVERY_SECONDS) -> None:
        self._call = beat
        self._every_seconds = every_seconds
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._wind_up()

    def __exit__(self, *exception: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wind_up(self) -> None:
        if self._every_seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(self._every_seconds, self._beat)

    def _beat(self) -> None:
        self._call()
        self._wind_up()


def signs_of_life(conversation: Conversation) -> Pulse:
    """While neither the model nor a tool has the turn, but a hook or a server that is waited for."""
    return Pulse(lambda: conversation.tell(Status(status=None)), conversation.limits.heartbeat_seconds)


class Silence(Pulse):
    """`with silence:` tells that the model is waited for, when nothing was told for long.

    Clients know this line, and old ones do not die of it. Whoever tells something sets `looks` to 0: to look
    whether it is silent costs less than to note the time of every line.
    """

    def __init__(self, tell: Callable[[Message], None], most_seconds: float | None) -> None:
        super().__init__(self._look, None if most_seconds is None else most_seconds / LOOKS)
        self._tell = tell
        self.looks = 0
        """How often somebody looked, and nothing had been told since."""

    def __enter__(self) -> None:
        self.looks = 0
        super().__enter__()

    def _look(self) -> None:
        self.looks += 1
        if self.looks == LOOKS:
            self.looks = 0
            self._tell(Status(status="requesting"))


class Heartbeat(Pulse):
    """`with Heartbeat(tell, call):` tells every half minute that the call still runs."""

    def __init__(
        self, tell: Callable[[Message], None], call: ToolUse, every_seconds: float | None = EVERY_SECONDS
    ) -> None:
        super().__init__(self._still_runs, every_seconds)
        self._tell = tell
        self._tool_use = call
        self._beats = 0

    def _still_runs(self) -> None:
        call, beat = self._tool_use, self._beats
        self._beats += 1
        self._tell(
            ToolProgress(
                tool_use_id=f"{call.id}-heartbeat-{beat}",
                tool_name=call.name,
                parent_tool_use_id=call.id,
                elapsed_time_seconds=(self._every_seconds or 0) * self._beats,
                heartbeat=True,
            )
        )
