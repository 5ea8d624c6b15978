"""TaskStop: stop a background task."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import Context, ToolOutput
from parley.tools.shell.background import RUNNING, find_task
from parley.workspace.base import Scope


class TaskStopShown(Struct, frozen=True, kw_only=True):
    task_id: Annotated[str, Meta(description="The id that was returned when the task was started")]


class TaskStopInput(Struct, frozen=True, kw_only=True):
    task_id: str | None = None
    shell_id: str | None = None
    """The older name of the field."""


class TaskStop:
    name: ClassVar[str] = "TaskStop"
    reads_only: ClassVar[bool] = False
    input: ClassVar[type[Struct]] = TaskStopInput
    shown: ClassVar[type[Struct]] = TaskStopShown
    description: ClassVar[str] = "Ends a running background task and every process it started."

    async def run(self, call: TaskStopInput, context: Context, reach: Scope) -> ToolOutput:
        background, task = find_task(context.session.tasks, call.task_id or call.shell_id)
        if task.status != RUNNING:
            raise ToolError(f"Task {task.id} is not running: its status is {task.status}.")
        background.stop(task.id)
        message = f"Stopped task {task.id} ({task.description})."
        detail: Json = {"message": message, "task_id": task.id, "task_type": task.kind, "command": task.command}
        return ToolOutput(content=message, detail=detail)
