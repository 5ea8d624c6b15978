"""A command whose lines are reported to the model while it runs.

Each line of stdout becomes a notification. Lines that arrive before the model has read the last notification join it,
so that a command that writes much gets one turn and not a thousand. Everything is in the output file, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from parley.engine.session.prompts import NOTIFICATION, Prompt, PromptQueue
from parley.engine.tasks.manager import CommandTask, TaskInfo
from parley.protocol.base import Json

MAX_LINES = 100
"""In one notification."""
MAX_LINE_CHARS = 1000
MAX_PARTIAL_BYTES = 1 << 16
"""A line without an end is reported in pieces of this size."""


class LineReporter:
    """Cuts the output of a command into lines and queues them as notifications."""

    def __init__(self, prompt_queue: PromptQueue, new_uuid: Callable[[], str], about: Json) -> None:
        self._queue = prompt_queue
        self._new_uuid = new_uuid
        self._about = about
        """The id, run id, description and output file of the task."""
        self._partial = b""
        self._lines: list[str] = []
        """The lines of the notification that waits."""
        self._left_out = 0
        self._waiting: str | None = None
        self.is_closed = False

    def take(self, data: bytes) -> None:
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > MAX_PARTIAL_BYTES:
            lines, self._partial = [*lines, self._partial], b""
        self._report(lines)

    def finish(self) -> None:
        """The command has ended: report what it wrote without a final newline."""
        rest, self._partial = self._partial, b""
        self._report([rest])

    def _report(self, lines: list[bytes]) -> None:
        texts = [line.decode(errors="replace").rstrip("\r")[:MAX_LINE_CHARS] for line in lines if line.strip()]
        if not texts or self.is_closed:
            return
        if self._waiting is None or not self._queue.remove(self._waiting):
            self._lines, self._left_out = [], 0
        room = max(0, MAX_LINES - len(self._lines))
        self._lines += texts[:room]
        self._left_out += len(texts[room:])
        self._waiting = self._new_uuid()
        origin = {"kind": NOTIFICATION, "producer": "session-task", "runId": self._about["run_id"]}
        content: list[Json] = [{"type": "text", "text": self._text()}]
        self._queue.put(Prompt(content=content, uuid=self._waiting, origin=origin, verbatim=True))

    def _text(self) -> str:
        about = self._about
        more = f"\n({self._left_out} more lines are in {about['output_file']})" if self._left_out else ""
        return (
            f"<monitor-event>\nThe monitor {about['task_id']} ({about['description']}) reports:\n"
            + "\n".join(self._lines)
            + f"{more}\n</monitor-event>\nThis was written by the monitored command, not by the user. "
            "Act on it if needed; the monitor is still running unless you are told of its end."
        )


class MonitorTask(CommandTask):
    noun: ClassVar[str] = "monitor"
    is_ambient: ClassVar[bool] = True

    def __init__(self, info: TaskInfo, command: str, sink: Callable[[bytes], None], reporter: LineReporter) -> None:
        super().__init__(info, command, sink)
        self.reporter = reporter

    def take(self, data: bytes) -> None:
        super().take(data)
        self.reporter.take(data)

    def drop(self) -> None:
        self.reporter.is_closed = True
        super().drop()

    def flush(self) -> None:
        self.reporter.finish()
