"""CronDelete: remove a scheduled prompt."""

from __future__ import annotations

from typing import ClassVar

from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import Context, ToolOutput
from parley.tools.schedule.access import open_schedule
from parley.workspace.base import Scope


class CronDeleteInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str


class CronDelete:
    name: ClassVar[str] = "CronDelete"
    reads_only: ClassVar[bool] = False
    input: ClassVar[type[Struct]] = CronDeleteInput
    description: ClassVar[str] = "Removes a scheduled job."

    async def run(self, call: CronDeleteInput, context: Context, reach: Scope) -> ToolOutput:
        schedule = open_schedule(context)
        job = schedule.remove(call.id)
        if job is None:
            known = ", ".join(job.id for job in schedule.list_jobs()) or "none"
            raise ToolError(f"There is no scheduled job {call.id!r}. The jobs are: {known}.")
        detail: Json = {"id": job.id, **({"endedLoopWakeup": True} if job.is_wakeup else {})}
        return ToolOutput(content=f"Removed the scheduled job {job.id}.", detail=detail)
