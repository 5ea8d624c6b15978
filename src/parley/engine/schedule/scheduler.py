"""Queues scheduled prompts at their times.

    scheduler.add(job)        recorded first, so that the job survives the process
    scheduler.start()         for the jobs of a resumed session

The prompt of a job gets a turn of its own. If the prompt of a recurring job still waits, the job is skipped. A job
whose time passed while no process ran is queued once, at the start. Jobs do not keep a session alive whose input has
ended.

See also: `tools/schedule.py` for the tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from parley.engine.clock import Clock
from parley.engine.session.journal import Journal
from parley.engine.session.prompts import NOTIFICATION, Prompt, PromptQueue
from parley.errors import SessionError
from parley.protocol.base import Json, convert, to_builtins
from parley.stores.base import Entry
from parley.tools.schedule import EXPIRES_AFTER_SECONDS, CronExpression, ScheduledJob

LONGEST_SLEEP_SECONDS = 60.0
"""The machine may sleep, or its clock may be set; so the time is looked at again."""
LATE_SECONDS = 120.0
"""A job that is later than this was missed by an earlier process."""
FRAME = (
    "<scheduled-prompt id={id!r}>\n{prompt}\n</scheduled-prompt>\n"
    "You scheduled this prompt yourself earlier. It was queued by the engine, not typed by the user now."
)
KIND = "schedule"


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
        self._journal.append_event(KIND, {"job": to_builtins(job)})
        self.start()

    def remove(self, id: str) -> ScheduledJob | None:
        """Raises SessionError."""
        job = next((job for job in self.list_jobs() if job.id == id), None)
        if job is not None:
            self._journal.append_event(KIND, {"removed": id})
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
            self._journal.append_event(KIND, {"fired": job.id, "uuid": uuid})
            return
        due = CronExpression.parse(job.cron).next_after(now)
        if due is None or due - job.created > EXPIRES_AFTER_SECONDS:
            self._journal.append_event(KIND, {"removed": job.id})
        else:
            self._journal.append_event(KIND, {"job": to_builtins(msgspec.structs.replace(job, due=due))})


class ScheduleLog:
    def __init__(self) -> None:
        self.jobs: dict[str, ScheduledJob] = {}
        self._queued: dict[str, str] = {}
        """The jobs that fire once and whose prompt has no turn yet, by the id of the prompt."""

    def apply(self, entry: Entry) -> None:
        message = entry.message
        if entry.kind == "user":
            for uuid in (message.get("uuid"), *(message.get("user_message_uuids") or ())):
                self.jobs.pop(self._queued.pop(str(uuid), ""), None)
        elif "job" in message:
            job: ScheduledJob = convert(message["job"], ScheduledJob)
            self.jobs[job.id] = job
        elif "removed" in message:
            self.jobs.pop(str(message["removed"]), None)
        elif "fired" in message:
            self._queued[str(message["uuid"])] = str(message["fired"])

    def forget_queued(self) -> None:
        """The prompts of an earlier process are gone with it."""
        self._queued.clear()

    def is_queued(self, id: str) -> bool:
        return id in self._queued.values()

    def records(self) -> list[tuple[str, Json]]:
        """What the log of the next session starts with."""
        return [(KIND, {"job": to_builtins(job)}) for job in self.jobs.values()]
