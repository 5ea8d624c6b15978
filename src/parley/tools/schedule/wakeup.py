"""ScheduleWakeup: continue after a while with a prompt, as long as the model wants to."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import Context, ToolOutput
from parley.tools.schedule.access import open_schedule
from parley.tools.schedule.cron_create import local_time
from parley.tools.schedule.jobs import Schedule, ScheduledJob, check_prompt, check_room
from parley.workspace.base import Scope

SHORTEST_SECONDS = 60
LONGEST_SECONDS = 3600


class ScheduleWakeupShown(Struct, frozen=True, kw_only=True):
    """The input as the model sees it."""

    delaySeconds: Annotated[float, Meta(description=f"{SHORTEST_SECONDS} to {LONGEST_SECONDS}")] = 0
    prompt: str = ""
    reason: str = ""
    stop: Annotated[bool, Meta(description="Only cancel the pending wake-up")] = False


class ScheduleWakeupInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    delaySeconds: float | None = None
    prompt: str | None = None
    reason: str | None = None
    stop: bool | None = None
    noop: bool | None = None
    """For clients that collapse turns in which nothing happened; they see it in the call."""


class ScheduleWakeup:
    name: ClassVar[str] = "ScheduleWakeup"
    reads_only: ClassVar[bool] = False
    input: ClassVar[type[Struct]] = ScheduleWakeupInput
    shown: ClassVar[type[Struct]] = ScheduleWakeupShown
    description: ClassVar[str] = (
        "Asks you the prompt after a delay; end your turn then. A new wake-up replaces the pending one."
    )

    async def run(self, call: ScheduleWakeupInput, context: Context, reach: Scope) -> ToolOutput:
        schedule = open_schedule(context)
        if call.stop:
            return stop(schedule)
        if not call.delaySeconds:
            raise ToolError("delaySeconds is missing: give the number of seconds until the wake-up.")
        prompt = check_prompt(call.prompt)
        cancel_wakeups(schedule)
        check_room(schedule)
        delay = min(max(call.delaySeconds, SHORTEST_SECONDS), LONGEST_SECONDS)
        now = schedule.now()
        job = ScheduledJob(id=schedule.new_id(), prompt=prompt, due=now + delay, created=now, reason=call.reason or "")
        schedule.add(job)
        was_clamped = delay != call.delaySeconds
        detail: Json = {"scheduledFor": job.due_ms, "clampedDelaySeconds": delay, "wasClamped": was_clamped}
        limit = f" The delay was changed to {delay:g} s." if was_clamped else ""
        return ToolOutput(
            content=f"You are woken up at {local_time(job.due)} (job {job.id}).{limit} End your turn now.",
            detail=detail,
        )


def stop(schedule: Schedule) -> ToolOutput:
    cancelled = cancel_wakeups(schedule)
    text = "The pending wake-up is cancelled." if cancelled else "No wake-up was pending."
    detail: Json = {
        "scheduledFor": 0,
        "clampedDelaySeconds": 0,
        "wasClamped": False,
        "stopped": True,
        "cancelledWakeups": cancelled,
    }
    return ToolOutput(content=text, detail=detail)


def cancel_wakeups(schedule: Schedule) -> int:
    pending = [job for job in schedule.list_jobs() if job.is_wakeup]
    for job in pending:
        schedule.remove(job.id)
    return len(pending)
