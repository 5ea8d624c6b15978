"""CronList: the scheduled prompts of the session."""

from __future__ import annotations

from typing import ClassVar

from parley.protocol.base import Json, Struct
from parley.tools.base import Context, ToolOutput
from parley.tools.schedule.access import open_schedule
from parley.tools.schedule.cron import CronExpression
from parley.tools.schedule.cron_create import job_detail, local_time
from parley.tools.schedule.jobs import ScheduledJob
from parley.workspace.base import Scope


class CronListInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class CronList:
    name: ClassVar[str] = "CronList"
    reads_only: ClassVar[bool] = True
    input: ClassVar[type[Struct]] = CronListInput
    description: ClassVar[str] = "Lists the scheduled jobs."

    async def run(self, call: CronListInput, context: Context, reach: Scope) -> ToolOutput:
        jobs = sorted(open_schedule(context).list_jobs(), key=lambda job: job.due)
        rows: list[Json] = [
            {**job_detail(job, CronExpression.parse(job.cron)), "cron": job.cron, "prompt": job.prompt}
            for job in jobs
            if not job.is_wakeup
        ]
        return ToolOutput(
            content="\n".join(map(line_of, jobs)) or "There are no scheduled jobs.", detail={"jobs": rows}
        )


def line_of(job: ScheduledJob) -> str:
    kind = "wake-up" if job.is_wakeup else CronExpression.parse(job.cron).describe()
    once = "" if job.recurring or job.is_wakeup else ", once"
    return f"{job.id} ({kind}{once}), next {local_time(job.due)}: {job.prompt}"
