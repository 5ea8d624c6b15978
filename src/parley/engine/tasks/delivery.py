"""Deliver the messages about the end of a task, also across a crash.

They are recorded before they are sent, and marked when they have been written. After a kill in between, the next
process of the session sends them again with the same ids, so that the client can recognize duplicates.

    notifications.append_and_send({"task_id": "b1", "status": "completed", ...}, lines)
    notifications.send(end, lines)    # recorded by an earlier process

See also: `manager.py` for the tasks, `recovery/recover.py` for those of a killed process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from parley.errors import SessionError
from parley.protocol.base import Json, Message, to_builtins

RUNNING = "running"
"""The status of a task that has not ended."""
CLOSE_TIMEOUT_SECONDS = 0.5
"""How long the end of a session waits for a client that does not read."""


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
        """Record the end of a task, then send its messages."""
        with suppress(SessionError):  # the next write to the log reports the error
            self._append_event("task", {**end, "lines": [to_builtins(line) for line in lines]})
        self.send(end, lines)

    def send(self, end: Json, lines: Sequence[Message]) -> None:
        """Send recorded messages."""
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
        """Wait until everything is marked, up to a limit."""
        if self._marking:
            _, late = await asyncio.wait(self._marking, timeout=CLOSE_TIMEOUT_SECONDS)
            for marking in late:
                marking.cancel()


def notification_text(text: str, status: str, output_file: str) -> str:
    """The text for the model about a finished task."""
    return (
        f"<task-notification>\n{text}\nStatus: {status}\nOutput file: {output_file}\n</task-notification>\n"
        "This was sent by the engine, not by the user. Read the output if you need it, and continue with the work."
    )
