"""Background tasks as tools see them, and the tools for them: TaskOutput and TaskStop.

The engine implements `Background` in engine/tasks/manager.py. Bash, Monitor and Agent start tasks.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Protocol

from msgspec import Meta

from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import HIDDEN, REQUIRED, CommandOrder, Context, Tool, ToolOutput
from parley.workspace.base import Scope
from parley.workspace.process.processes import CommandOutput, Finished

RUNNING = "running"
DEFAULT_WAIT_MS = 30_000
LONGEST_WAIT_MS = 600_000
SHOWN_BYTES = 30_000
TaskId = Annotated[str | None, Meta(description="The id that was returned when the task was started"), REQUIRED]


class BackgroundTask(Protocol):
    """A task, running or finished."""

    id: str
    kind: ClassVar[str]
    """`local_bash` for a command."""
    description: str
    command: str
    """The command line; empty for other tasks."""
    output_file: str
    status: str
    """`running`, `completed`, `failed` or `killed`."""
    exit_code: int | None
    """None while it runs, or if it has none."""


class OutputTail(Protocol):
    """The end of the output of a task."""

    @property
    def text(self) -> str: ...

    @property
    def total_bytes(self) -> int: ...

    @property
    def is_cut(self) -> bool: ...


class Background(Protocol):
    """Every `task_id` is one that `find` returns."""

    are_allowed: bool
    """Whether commands may run in the background."""

    async def start_command(self, order: CommandOrder) -> BackgroundTask:
        """Raises ToolError if it cannot be started."""

    async def start_monitor(self, order: CommandOrder) -> BackgroundTask:
        """Start a command whose lines are reported to the model. Raises ToolError."""

    async def run_command(self, order: CommandOrder, output: CommandOutput) -> Finished | BackgroundTask:
        """How a command ended, or the task it became meanwhile. Cancelling kills it. Raises ToolError."""

    def find(self, task_id: str) -> BackgroundTask | None: ...

    def ids(self) -> list[str]:
        """All tasks of the session, oldest first."""

    def stop(self, task_id: str) -> None:
        """Stop a task. Does nothing if it has finished."""

    async def wait(self, task_id: str, timeout_seconds: float) -> None:
        """Wait until a task has finished, or the time is up."""

    def mark_known(self, task_id: str) -> None:
        """Record that the model knows how a task ended, so no notification follows."""

    def tail(self, task_id: str, limit_bytes: int) -> OutputTail: ...


def find_task(background: Background | None, task_id: str | None) -> tuple[Background, BackgroundTask]:
    """The task that a call names. Raises ToolError."""
    if background is None:
        raise ToolError("Background tasks are not available in this session.")
    if not task_id:
        raise ToolError("task_id is missing: give the id of a task.")
    task = background.find(task_id)
    if task is None:
        known = ", ".join(background.ids()) or "none"
        raise ToolError(f"There is no task {task_id!r}. The tasks of this session are: {known}.")
    return background, task


class TaskOutputInput(Struct, frozen=True, kw_only=True):
    task_id: TaskId = None
    bash_id: Annotated[str | None, HIDDEN] = None
    """The older name of the field."""
    block: Annotated[bool, Meta(description="Wait until the task finishes, at most as long as `timeout`")] = True
    timeout: Annotated[int, Meta(description=f"How many milliseconds to wait, at most {LONGEST_WAIT_MS}")] = (
        DEFAULT_WAIT_MS
    )


class TaskOutput(Tool):
    name = "TaskOutput"
    reads_only = True
    input = TaskOutputInput
    description = (
        "Gives the state of a background task and the end of its output. Waits until the task finishes unless `block` "
        "is false. You are notified anyway when a task finishes: use this only if you need its output now."
    )

    async def run(self, call: TaskOutputInput, context: Context, reach: Scope) -> ToolOutput:
        background, task = find_task(context.session.tasks, call.task_id or call.bash_id)
        if call.block:
            await background.wait(task.id, min(max(0, call.timeout), LONGEST_WAIT_MS) / 1000)
        if task.status != RUNNING:
            background.mark_known(task.id)
        tail = background.tail(task.id, SHOWN_BYTES)
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
        outcome = "success" if ready else ("timeout" if call.block else "not_ready")
        text = "\n".join([*lines, tail.text] if tail.text else lines)
        return ToolOutput(content=text, detail={"retrieval_status": outcome, "task": state})


class TaskStopInput(Struct, frozen=True, kw_only=True):
    task_id: TaskId = None
    shell_id: Annotated[str | None, HIDDEN] = None
    """The older name of the field."""


class TaskStop(Tool):
    name = "TaskStop"
    reads_only = False
    input = TaskStopInput
    description = "Ends a running background task and every process it started."

    async def run(self, call: TaskStopInput, context: Context, reach: Scope) -> ToolOutput:
        background, task = find_task(context.session.tasks, call.task_id or call.shell_id)
        if task.status != RUNNING:
            raise ToolError(f"Task {task.id} is not running: its status is {task.status}.")
        background.stop(task.id)
        message = f"Stopped task {task.id} ({task.description})."
        detail: Json = {"message": message, "task_id": task.id, "task_type": task.kind, "command": task.command}
        return ToolOutput(content=message, detail=detail)
