"""What wakes a session without a user: lines of a monitored command, and scheduled prompts.

    scheduler.add(job)        recorded first, so that the job survives the process
    scheduler.start()         for the jobs of a resumed session

Each line that a monitored command writes to stdout becomes a notification. Lines that arrive before the model has read
the last notification join it, so that a command that writes much gets one turn and not a thousand. Everything is in the
output file, too.

The prompt of a job gets a turn of its own. If the prompt of a recurring job still waits, the job is skipped. A job
whose time passed while no process ran is queued once, at the start. Jobs do not keep a session alive whose input has
ended.

See also: `tools/schedule.py` and `tools/background.py` for the tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar

import msgspec

from parley.engine.clock import Clock
from parley.engine.session.journal import SCHEDULE, Journal, ScheduleLog
from parley.engine.session.prompts import NOTIFICATION, Prompt, PromptQueue
from parley.engine.tasks.manager import CommandTask, TaskInfo
from parley.errors import SessionError
from parley.protocol.base import Json, to_builtins
from parley.tools.schedule import EXPIRES_AFTER_SECONDS, CronExpression, ScheduledJob

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


LONGEST_SLEEP_SECONDS = 60.0
"""The machine may sleep, or its clock may be set; so the time is looked at again."""
LATE_SECONDS = 120.0
"""A job that is later than this was missed by an earlier process."""
FRAME = (
    "<scheduled-prompt id={id!r}>\n{prompt}\n</scheduled-prompt>\n"
    "You scheduled this prompt yourself earlier. It was queued by the engine, not typed by the user now."
)


class Scheduler:
    def __init__(self, journal: Journal, prompt_queue: PromptQueue, clock: Clock, warn: Callable[[str], None]) -> None:
        self._journal = journal
        self._queue = prompt_queue
        self._clock = clock
        self._warn = warn
        self.now = clock.seconds
        self._task: asyncio.Task[None] | None = None
        self._waiting: dict[str, str] = {}
        """The prompt that each job queued last."""

    @property
    def _log(self) -> ScheduleLog:
        return self._journal.get_schedule()

    def list_jobs(self) -> Sequence[ScheduledJob]:
        return [job for job in self._log.jobs.values() if not self._log.is_queued(job.id)]

    def new_id(self) -> str:
        return self._clock.new_uuid().replace("-", "")[-8:]

    def add(self, job: ScheduledJob) -> None:
        """Raises SessionError."""
        self._journal.append_event(SCHEDULE, {"job": to_builtins(job)})
        self.start()

    def remove(self, id: str) -> ScheduledJob | None:
        """Raises SessionError."""
        job = next((job for job in self.list_jobs() if job.id == id), None)
        if job is not None:
            self._journal.append_event(SCHEDULE, {"removed": id})
            self.start()
        return job

    def resume(self) -> None:
        """Continue with the jobs of an earlier process."""
        self._log.forget_queued()
        self.start()

    def start(self) -> None:
        """Wait for the next job, from now on."""
        self.close()
        if self._log.jobs:
            self._task = asyncio.create_task(self._run())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while jobs := self.list_jobs():
            now = self.now()
            due = min(job.due for job in jobs)
            if due > now:
                await self._clock.sleep(min(due - now, LONGEST_SLEEP_SECONDS))
                continue
            try:
                for job in jobs:
                    if job.due <= now:
                        self._fire(job, now)
            except SessionError as exc:
                self._warn(f"scheduled prompts are stopped: {exc}")
                return

    def _fire(self, job: ScheduledJob, now: float) -> None:
        """Queue the prompt of a job, and record when it is due next. Raises SessionError."""
        uuid = self._clock.new_uuid()
        is_waiting = any(prompt.uuid == self._waiting.get(job.id) for prompt in self._queue.list_prompts())
        self._record(job, now, uuid)
        if is_waiting:
            return
        self._waiting[job.id] = uuid
        origin = {
            "kind": NOTIFICATION,
            "subkind": "scheduled-trigger",
            "fireReason": "catch_up" if now - job.due > LATE_SECONDS else "scheduled",
        }
        text = FRAME.format(id=job.id, prompt=job.prompt)
        # Verbatim: the model wrote it, so it is not a slash command of the user.
        self._queue.put(Prompt(content=[{"type": "text", "text": text}], uuid=uuid, origin=origin, verbatim=True))

    def _record(self, job: ScheduledJob, now: float, uuid: str) -> None:
        if not job.recurring:
            self._journal.append_event(SCHEDULE, {"fired": job.id, "uuid": uuid})
            return
        due = CronExpression.parse(job.cron).next_after(now)
        if due is None or due - job.created > EXPIRES_AFTER_SECONDS:
            self._journal.append_event(SCHEDULE, {"removed": job.id})
        else:
            self._journal.append_event(SCHEDULE, {"job": to_builtins(msgspec.structs.replace(job, due=due))})
