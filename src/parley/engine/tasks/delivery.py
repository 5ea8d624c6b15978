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
from parley.protocol.base import Json, Message, plain

PATIENCE_SECONDS = 0.5
"""How long the end of a session waits for a host that does not read."""


class Owed:
    def __init__(
        self,
        note: Callable[[str, Json], None],
        tell: Callable[[Message], None],
        reached: Callable[[], Awaitable[bool]],
    ) -> None:
        self._note = note
        self._tell = tell
        self._reached = reached
        self._marking: set[asyncio.Task[None]] = set()

    def settle(self, end: Json, lines: Sequence[Message]) -> None:
        """Put an end on record, then tell it."""
        with suppress(SessionError):  # the log is broken, and whoever writes to it next will say so
            self._note("task", {**end, "lines": [plain(line) for line in lines]})
        self.tell(end, lines)

    def tell(self, end: Json, lines: Sequence[Message]) -> None:
        """Tell what is on record."""
        for line in lines:
            self._tell(line)
        mark = {"task_id": end["task_id"], "status": end["status"], "told": getattr(lines[-1], "uuid", None)}
        marking = asyncio.create_task(self._mark(mark))
        self._marking.add(marking)
        marking.add_done_callback(self._marking.discard)

    async def _mark(self, mark: Json) -> None:
        if await self._reached():
            with suppress(SessionError):
                self._note("task", mark)

    async def closed(self) -> None:
        """Until all is marked, or nobody reads it."""
        if self._marking:
            _, late = await asyncio.wait(self._marking, timeout=PATIENCE_SECONDS)
            for marking in late:
                marking.cancel()
