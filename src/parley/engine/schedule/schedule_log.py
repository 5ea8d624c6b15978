"""The scheduled prompts in the log of a session: a fold over its entries.

    {"job": {...}}                       a new job, or a changed one
    {"removed": "j1"}                    the job is gone
    {"fired": "j1", "uuid": "..."}       its prompt was queued; a job that fires once is done when the prompt has a turn

A job whose prompt was queued by an engine that was killed before the turn is queued again by the next one.
"""

from __future__ import annotations

from parley.protocol.base import Json, convert, to_builtins
from parley.stores.base import Entry
from parley.tools.schedule import ScheduledJob

KIND = "schedule"


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
