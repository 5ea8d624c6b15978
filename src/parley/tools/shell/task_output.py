"""TaskOutput: the output of a background task so far, and its status."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from parley.protocol.base import Json, Struct
from parley.tools.base import Context, ToolOutput
from parley.tools.shell.background import RUNNING, BackgroundTask, OutputTail, find_task
from parley.workspace.base import Scope

DEFAULT_TIMEOUT_MS = 30_000
LONGEST_TIMEOUT_MS = 600_000
SHOWN_BYTES = 30_000


class TaskOutputShown(Struct, frozen=True, kw_only=True):
    task_id: Annotated[str, Meta(description="The id that was returned when the task was started")]
    block: Annotated[bool, Meta(description="Wait until the task finishes, at most as long as `timeout`")] = True
    timeout: Annotated[int, Meta(description=f"How many milliseconds to wait, at most {LONGEST_TIMEOUT_MS}")] = (
        DEFAULT_TIMEOUT_MS
    )


class TaskOutputInput(Struct, frozen=True, kw_only=True):
    task_id: str | None = None
    bash_id: str | None = None
    """The older name of the field."""
    block: bool = True
    timeout: int = DEFAULT_TIMEOUT_MS


class TaskOutput:
    name: ClassVar[str] = "TaskOutput"
    reads_only: ClassVar[bool] = True
    input: ClassVar[type[Struct]] = TaskOutputInput
    shown: ClassVar[type[Struct]] = TaskOutputShown
    description: ClassVar[str] = (
        "Gives the state of a background task and the end of its output. Waits until the task finishes unless `block` "
        "is false. You are notified anyway when a task finishes: use this only if you need its output now."
    )

    async def run(self, call: TaskOutputInput, context: Context, reach: Scope) -> ToolOutput:
        background, task = find_task(context.session.tasks, call.task_id or call.bash_id)
        if call.block:
            await background.wait(task.id, min(max(0, call.timeout), LONGEST_TIMEOUT_MS) / 1000)
        if task.status != RUNNING:
            background.mark_known(task.id)
        return format_result(task, background.tail(task.id, SHOWN_BYTES), waited=call.block)


def format_result(task: BackgroundTask, tail: OutputTail, *, waited: bool) -> ToolOutput:
    """The result for the model and the client."""
    code = "" if task.exit_code is None else f" (exit code {task.exit_code})"
    lines = [f"Task {task.id} ({task.description}): {task.status}{code}"]
    if tail.is_cut:
        lines.append(f"Output: {tail.total_bytes} bytes in {task.output_file}; this is the end of it:")
    elif tail.text:
        lines.append(f"Output (also in {task.output_file}):")
    else:
        lines.append("No output so far." if task.status == RUNNING else "No output.")
    state: Json = {
        "task_id": task.id,
        "task_type": task.kind,
        "status": task.status,
        "description": task.description,
        "output": tail.text,
        "exitCode": task.exit_code,
    }
    ready = task.status != RUNNING
    outcome = "success" if ready else ("timeout" if waited else "not_ready")
    text = "\n".join([*lines, tail.text] if tail.text else lines)
    return ToolOutput(content=text, detail={"retrieval_status": outcome, "task": state})
