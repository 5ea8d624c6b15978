"""Commands in the foreground. The client can move them to the background.

    end = await foreground.run(order, CommandOutput(...))    # how it ended, or the task that it became

As in recordings of Claude Code, a command that takes longer than a few seconds is announced as a task.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from parley.engine.tasks.task import CommandTask, TaskInfo, new_run_id, short_id
from parley.errors import ToolError
from parley.protocol.messages.system import TaskNotification, TaskStarted
from parley.tools.base import CommandOrder
from parley.workspace import private_files
from parley.workspace.process.output import BELOW, CommandOutput
from parley.workspace.process.processes import CommandEnd, Finished, Processes, RunningCommand

if TYPE_CHECKING:
    from parley.engine.clock import Clock
    from parley.engine.tasks.manager import TaskManager

ANNOUNCE_AFTER_SECONDS = 3.0
BACKGROUND_TIMEOUT_SECONDS = 1800.0
"""The time limit of a command that was moved to the background."""
PART_BYTES = 1 << 20


class AwaitedCommand:
    """One command in the foreground."""

    def __init__(self, clock: Clock, order: CommandOrder, output: CommandOutput) -> None:
        self.id = f"b{short_id(clock.new_uuid(), 8)}"
        self.run_id = new_run_id(clock)
        self.output = output
        self.command = order.command
        self.description = order.description
        self.tool_use_id = order.tool_use_id
        self.is_announced = False
        self.moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the command is moved to the background."""
        self.sink: Callable[[bytes], None] = output.take
        """Receives its output."""

    def take(self, data: bytes) -> None:
        self.sink(data)

    def move(self) -> None:
        if not self.moved.done():
            self.moved.set_result(None)


class ForegroundCommand:
    """All foreground commands of a session."""

    def __init__(self, tasks: TaskManager, processes: Processes, clock: Clock) -> None:
        self._tasks = tasks
        self._processes = processes
        self._clock = clock
        self._running: dict[str, AwaitedCommand] = {}

    def move_to_background(self, tool_use_id: str | None) -> bool:
        """Move the command of a call, or all commands, to the background. Returns whether there is one."""
        matching = [one for one in self._running.values() if tool_use_id in (None, one.tool_use_id)]
        for command in matching:
            command.move()
        return bool(matching)

    async def run(self, order: CommandOrder, output: CommandOutput) -> Finished | CommandTask:
        """Run a command until it ends or is moved to the background. Cancelling kills it. Raises ToolError."""
        running = AwaitedCommand(self._clock, order, output)
        try:
            process = await self._processes.start(
                order.argv, cwd=order.cwd, environment=order.environment, take=running.take
            )
            self._running[running.id] = running
            end = await self._wait_end(running, process, order.timeout_seconds)
        finally:
            output.close()
            self._running.pop(running.id, None)
        if end is None:
            return self._continue_in_background(running, process)
        self._send_end(running, "completed" if end[0].exit_code == 0 and not end[1] else "failed")
        return self._processes.finished(*end, output)

    async def _wait_end(
        self, running: AwaitedCommand, process: RunningCommand, seconds: float
    ) -> tuple[CommandEnd, bool] | None:
        """How it ended, and whether it timed out; None if it was moved to the background."""
        timer = asyncio.get_running_loop().call_later(ANNOUNCE_AFTER_SECONDS, self._send_start, running)
        try:
            either: set[asyncio.Future[Any]] = {process.ended, running.moved}
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if running.moved.done() and not process.ended.done():
                return None
            return await self._processes.wait(process, 0)
        except asyncio.CancelledError:
            await self._processes.kill(process)
            self._send_end(running, "stopped")
            raise
        finally:
            timer.cancel()

    def _continue_in_background(self, running: AwaitedCommand, process: RunningCommand) -> CommandTask:
        """Raises ToolError; then the process is killed."""
        try:
            record = self._tasks.new_output(running.id)
        except ToolError:
            process.drop()
            self._send_end(running, "stopped")
            raise
        for part in read_output(running.output):
            record.take(part)
        running.sink = record.take
        info = TaskInfo(
            id=running.id,
            run_id=running.run_id,
            description=running.description,
            tool_use_id=running.tool_use_id,
            record=record,
        )
        task = CommandTask(info, running.command, process)
        self._tasks.adopt(task, BACKGROUND_TIMEOUT_SECONDS, is_announced=running.is_announced)
        return task

    def _send_start(self, running: AwaitedCommand) -> None:
        running.is_announced = True
        self._tasks.send(
            TaskStarted(
                task_id=running.id,
                run_id=running.run_id,
                tool_use_id=running.tool_use_id,
                description=running.description,
                is_backgrounded=False,
                task_type=CommandTask.kind,
            )
        )

    def _send_end(self, running: AwaitedCommand, status: str) -> None:
        if running.is_announced:
            self._tasks.send(
                TaskNotification(
                    task_id=running.id,
                    run_id=running.run_id,
                    tool_use_id=running.tool_use_id,
                    status=status,
                    output_file="",
                    summary=running.description,
                )
            )


def read_output(output: CommandOutput) -> list[bytes]:
    """The whole output so far."""
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
