"""What tools may ask of the session's background tasks. The engine's side is engine/tasks/manager.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from parley.errors import ToolError
from parley.workspace.process.output import Output
from parley.workspace.process.processes import Finished

if TYPE_CHECKING:
    from parley.tools.base import Order

RUNNING = "running"


class Task(Protocol):
    """A task, running or over."""

    @property
    def id(self) -> str: ...

    @property
    def kind(self) -> str:
        """`local_bash` for a command."""

    @property
    def description(self) -> str: ...

    @property
    def command(self) -> str:
        """The command line; empty if it is none."""

    @property
    def output_file(self) -> str: ...

    @property
    def status(self) -> str:
        """`running`, `completed`, `failed` or `killed`."""

    @property
    def exit_code(self) -> int | None:
        """None while it runs, and if it has none."""


class Tail(Protocol):
    """The end of what a task wrote."""

    @property
    def text(self) -> str: ...

    @property
    def total_bytes(self) -> int: ...

    @property
    def is_cut(self) -> bool: ...


class Background(Protocol):
    """Every `task_id` is one that `find` knows."""

    are_allowed: bool
    """Whether anything may run in the background; else everything is waited for."""

    async def start_command(self, order: Order) -> Task:
        """Raises ToolError if it cannot be started."""

    async def run_command(self, order: Order, output: Output) -> Finished | Task:
        """How a command ended, or the task that it has become meanwhile. Cancelling kills it. Raises ToolError."""

    def find(self, task_id: str) -> Task | None: ...

    def ids(self) -> list[str]:
        """All tasks of the session, the oldest first."""

    def stop(self, task_id: str) -> None:
        """End it. Does nothing if it is over."""

    async def wait(self, task_id: str, timeout_seconds: float) -> None:
        """Until it is over, or the time is up."""

    def mark_known(self, task_id: str) -> None:
        """The model has been told how it ended: no turn needs to tell it again."""

    def tail(self, task_id: str, limit_bytes: int) -> Tail: ...


def named(background: Background | None, task_id: str | None) -> tuple[Background, Task]:
    """The task a tool was called for. Raises ToolError."""
    if background is None:
        raise ToolError("There are no background tasks here.")
    if not task_id:
        raise ToolError("task_id is missing.")
    task = background.find(task_id)
    if task is None:
        known = ", ".join(background.ids()) or "none"
        raise ToolError(f"There is no task {task_id!r}. The tasks of this session are: {known}.")
    return background, task
