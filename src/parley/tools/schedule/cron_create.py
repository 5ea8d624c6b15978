"""CronCreate: queue a prompt at the times of a cron expression."""

from __future__ import annotations

import time
from typing import Annotated, ClassVar

from msgspec import Meta

from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import Context, ToolOutput
from parley.tools.schedule.access import open_schedule
from parley.tools.schedule.cron import CronExpression
from parley.tools.schedule.jobs import EXPIRES_AFTER_SECONDS, ScheduledJob, check_prompt, check_room
from parley.workspace.base import Scope


class CronCreateShown(Struct, frozen=True, kw_only=True):
    cron: Annotated[str, Meta(description="minute hour day month weekday, local time")]
    prompt: str
    recurring: Annotated[bool, Meta(description="false: run only once, at the next match")] = True


class CronCreateInput(CronCreateShown, frozen=True, kw_only=True, forbid_unknown_fields=True):
    durable: bool = False
    """Accepted, and reported as not supported: jobs live as long as their session."""


class CronCreate:
    name: ClassVar[str] = "CronCreate"
    reads_only: ClassVar[bool] = False
    input: ClassVar[type[Struct]] = CronCreateInput
    shown: ClassVar[type[Struct]] = CronCreateShown
    description: ClassVar[str] = (
        "Asks you the prompt at the times of a cron expression while the session runs, for at most 7 days."
    )

    async def run(self, call: CronCreateInput, context: Context, reach: Scope) -> ToolOutput:
        schedule, expression = open_schedule(context), CronExpression.parse(call.cron)
        prompt = check_prompt(call.prompt)
        check_room(schedule)
        now = schedule.now()
        due = expression.next_after(now)
        if due is None:
            raise ToolError(f"The cron expression {call.cron!r} never matches.")
        job = ScheduledJob(
            id=schedule.new_id(), prompt=prompt, due=due, created=now, cron=expression.text, recurring=call.recurring
        )
        schedule.add(job)
        return ToolOutput(content=describe(job, expression, durable=call.durable), detail=job_detail(job, expression))


def job_detail(job: ScheduledJob, expression: CronExpression) -> Json:
    return {
        "id": job.id,
        "humanSchedule": expression.describe(),
        "recurring": job.recurring,
        "durable": False,
        "nextFireAt": job.due_ms,
    }


def describe(job: ScheduledJob, expression: CronExpression, *, durable: bool) -> str:
    days = round(EXPIRES_AFTER_SECONDS / 86_400)
    often = f"until it is removed with CronDelete, at most {days} days" if job.recurring else "once"
    text = f"Scheduled job {job.id} ({expression.describe()}), {often}. Next: {local_time(job.due)}."
    if durable:
        text += " durable is not supported: the job belongs to this session and continues when it is resumed."
    return text


def local_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
