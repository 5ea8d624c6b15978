"""Commands that are waited for: told as tasks when they take long, and sent to the background when the host wants it.

    ended = await attended.run(order, Output(...))    # how it ended, or the task that it has become

As recorded, a command that takes longer than a few seconds is told as a task, and so is its end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from parley.engine.tasks.task import CommandTask, run_id, short
from parley.errors import ToolError
from parley.protocol.messages.system import TaskNotification, TaskStarted
from parley.tools.base import Order
from parley.workspace import private_files
from parley.workspace.process.output import BELOW, Output
from parley.workspace.process.processes import Command, End, Finished, Processes

if TYPE_CHECKING:
    from parley.engine.clock import Stamp
    from parley.engine.tasks.manager import Tasks

TOLD_AFTER_SECONDS = 3.0
BEHIND_SECONDS = 1800.0
"""How long a command may run that was sent to the background."""
PART_BYTES = 1 << 20


class Waited:
    """One command that somebody waits for."""

    def __init__(self, stamp: Stamp, order: Order, output: Output) -> None:
        self.id = f"b{short(stamp.new_uuid(), 8)}"
        self.run_id = run_id(stamp)
        self.output = output
        self.command = order.command
        self.description = order.description
        self.tool_use_id = order.tool_use_id
        self.is_told = False
        self.moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Nobody waits for it any more."""
        self.sink: Callable[[bytes], None] = output.take
        """Where what it writes goes now."""

    def take(self, data: bytes) -> None:
        self.sink(data)

    def move(self) -> None:
        if not self.moved.done():
            self.moved.set_result(None)


class Attended:
    """All commands of a session that are waited for."""

    def __init__(self, tasks: Tasks, processes: Processes, stamp: Stamp) -> None:
        self._tasks = tasks
        self._processes = processes
        self._stamp = stamp
        self._waited: dict[str, Waited] = {}

    def move_behind(self, tool_use_id: str | None) -> bool:
        """Wait no longer for the command of a call, or for all of them; whether there is one."""
        meant = [waited for waited in self._waited.values() if tool_use_id in (None, waited.tool_use_id)]
        for waited in meant:
            waited.move()
        return bool(meant)

    async def run(self, order: Order, output: Output) -> Finished | CommandTask:
        """Run it to its end, or until it goes on behind. Cancelling kills it. Raises ToolError."""
        waited = Waited(self._stamp, order, output)
        try:
            process = await self._processes.start(
                order.argv, cwd=order.cwd, environment=order.environment, take=waited.take
            )
            self._waited[waited.id] = waited
            end = await self._until_over(waited, process, order.timeout_seconds)
        finally:
            output.close()
            self._waited.pop(waited.id, None)
        if end is None:
            return self._behind(waited, process)
        self._tell_end(waited, "completed" if end[0].exit_code == 0 and not end[1] else "failed")
        return self._processes.finished(*end, output)

    async def _until_over(self, waited: Waited, process: Command, seconds: float) -> tuple[End, bool] | None:
        """How it ended, and whether its time was up; None if nobody waits for it any more."""
        timer = asyncio.get_running_loop().call_later(TOLD_AFTER_SECONDS, self._tell_start, waited)
        try:
            either: set[asyncio.Future[Any]] = {process.over, waited.moved}
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if waited.moved.done() and not process.over.done():
                return None
            return await self._processes.wait(process, 0)
        except asyncio.CancelledError:
            await self._processes.kill(process)
            self._tell_end(waited, "stopped")
            raise
        finally:
            timer.cancel()

    def _behind(self, waited: Waited, process: Command) -> CommandTask:
        """Raises ToolError: then nothing of it is left."""
        try:
            record = self._tasks.new_output(waited.id)
        except ToolError:
            process.drop()
            self._tell_end(waited, "stopped")
            raise
        for part in so_far(waited.output):
            record.take(part)
        waited.sink = record.take
        task = CommandTask(
            id=waited.id,
            run_id=waited.run_id,
            description=waited.description,
            tool_use_id=waited.tool_use_id,
            record=record,
            command=waited.command,
            process=process,
        )
        self._tasks.adopt(task, BEHIND_SECONDS, is_told=waited.is_told)
        return task

    def _tell_start(self, waited: Waited) -> None:
        waited.is_told = True
        self._tasks.tell(
            TaskStarted(
                task_id=waited.id,
                run_id=waited.run_id,
                tool_use_id=waited.tool_use_id,
                description=waited.description,
                is_backgrounded=False,
                task_type=CommandTask.kind,
            )
        )

    def _tell_end(self, waited: Waited, status: str) -> None:
        if waited.is_told:
            self._tasks.tell(
                TaskNotification(
                    task_id=waited.id,
                    run_id=waited.run_id,
                    tool_use_id=waited.tool_use_id,
                    status=status,
                    output_file="",
                    summary=waited.description,
                )
            )


def so_far(output: Output) -> list[bytes]:
    """What a command has written until now, all of it."""
    if output.path is None:
        return [bytes(output.kept)]
    parts: list[bytes] = []
    try:
        with open(private_files.open_file(output.path, os.O_RDONLY, below=BELOW), "rb") as file:
            while part := file.read(PART_BYTES):
                parts.append(part)
    except OSError:
        return [bytes(output.kept)]
    return parts
