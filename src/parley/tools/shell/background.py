"""The interface of background tasks for tools. The engine implements it in engine/tasks/manager.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from parley.errors import ToolError
from parley.workspace.process.processes import CommandOutput, Finished

if TYPE_CHECKING:
    from parley.tools.base import CommandOrder

RUNNING = "running"


class BackgroundTask(Protocol):
    """A task, running or finished."""

    @property
    def id(self) -> str: ...

    @property
    def kind(self) -> str:
        """`local_bash` for a command."""

    @property
    def description(self) -> str: ...

    @property
    def command(self) -> str:
        """The command line; empty for other tasks."""

    @property
    def output_file(self) -> str: ...

    @property
    def status(self) -> str:
        """`running`, `completed`, `failed` or `killed`."""

    @property
    def exit_code(self) -> int | None:
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
