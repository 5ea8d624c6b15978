"""What the host is owed: the lines about the end of a task, told once it is certain that they cannot be lost.

They are on record before they are told, and marked when they have left us. A kill in between leaves lines without a
mark: the next engine of the session tells them again. They are the same lines, ids and all, so that a host
which has heard them knows them.

    owed.settle({"task_id": "b1", "status": "completed", ...}, lines)
    owed.tell(end, lines)         # those that another engine put on record

Not here: which tasks there are (manager.py), what is owed from before a kill (recovery/orphaned_tasks.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from parley.errors import SessionError
from parley.protocol.base import Json, Message, to_builtins

CLOSE_TIMEOUT_SECONDS = 0.5
"""How long the end of a session waits for a host that does not read."""


class PendingNotifications:
    def __init__(
        self,
        append_event: Callable[[str, Json], None],
        send: Callable[[Message], None],
        drain: Callable[[], Awaitable[bool]],
    ) -> None:
        self._append_event = append_event
        self._send = send
        self._drain = drain
        self._marking: set[asyncio.Task[None]] = set()

    def append_and_send(self, end: Json, lines: Sequence[Message]) -> None:
        """Put an end on record, then tell it."""
        with suppress(SessionError):  # the log is broken, and whoever writes to it next will say so
            self._append_event("task", {**end, "lines": [to_builtins(line) for line in lines]})
        self.send(end, lines)

    def send(self, end: Json, lines: Sequence[Message]) -> None:
        """Tell what is on record."""
        for line in lines:
            self._send(line)
        mark = {"task_id": end["task_id"], "status": end["status"], "told": getattr(lines[-1], "uuid", None)}
        marking = asyncio.create_task(self._mark_delivered(mark))
        self._marking.add(marking)
        marking.add_done_callback(self._marking.discard)

    async def _mark_delivered(self, mark: Json) -> None:
        if await self._drain():
            with suppress(SessionError):
                self._append_event("task", mark)

    async def close(self) -> None:
        """Until all is marked, or nobody reads it."""
        if self._marking:
            _, late = await asyncio.wait(self._marking, timeout=CLOSE_TIMEOUT_SECONDS)
            for marking in late:
                marking.cancel()
