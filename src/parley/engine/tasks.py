"""Work that goes on behind the conversation: commands in the background.

The host is told when a task begins and when it ends. The end of a task also becomes a
prompt, so that the model hears of it in a turn of its own; unless the task was stopped on
purpose, or the model knows already because it waited.

Not here: processes (workspace/processes.py), the tools that start, read and stop tasks.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from parley.engine.inbox import NOTIFICATION, Inbox, Prompt
from parley.engine.stamp import Stamp
from parley.errors import ToolError
from parley.protocol.base import Json, Message, Struct
from parley.protocol.messages.system import BackgroundTasksChanged, TaskNotification, TaskStarted, TaskUpdated
from parley.workspace.output import Record, private_folder
from parley.workspace.processes import Command, End, Processes

RUNNING = "running"
TOLD_AS = {"completed": "completed", "failed": "failed", "killed": "stopped"}
"""What a notification calls a task's last status."""
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class Task:
    """One command in the background."""

    kind = "local_bash"

    def __init__(
        self,
        *,
        id: str,
        run_id: str,
        description: str,
        command: str,
        tool_use_id: str,
        process: Command,
        record: Record,
    ) -> None:
        self.id = id
        self.run_id = run_id
        self.description = description
        self.command = command
        self.tool_use_id = tool_use_id
        self.process = process
        self.record = record
        self.output_file = str(record.path)
        self.status = RUNNING
        self.exit_code: int | None = None
        self.notice: str | None = None
        """The id of the prompt that tells the model of the end."""
        self.watcher: asyncio.Task[None] | None = None
        self.over = asyncio.Event()

    def json(self) -> Json:
        """As the list of live tasks has it."""
        return {
            "task_id": self.id,
            "run_id": self.run_id,
            "task_type": self.kind,
            "description": self.description,
        }


class Tail(Struct, frozen=True, kw_only=True):
    """The end of what a task wrote."""

    text: str
    total_bytes: int
    is_cut: bool


class Place(Struct, frozen=True, kw_only=True):
    """Where output files go: a private folder below a temporary one, or a folder of the session if that is taken."""

    temporary: Path
    names: tuple[str, ...]
    otherwise: Path

    def folder(self) -> Path:
        try:
            return private_folder(self.temporary, *self.names)
        except ToolError:
            return self.otherwise


class Tasks:
    """The background tasks of a session. Every `task_id` is one that `find` knows."""

    def __init__(
        self, *, processes: Processes, place: Place, stamp: Stamp, tell: Callable[[Message], None], inbox: Inbox
    ) -> None:
        self._processes = processes
        self._place = place
        self._stamp = stamp
        self._tell = tell
        self._inbox = inbox
        self._tasks: dict[str, Task] = {}
        self._ended = False

    # What tools and the host may ask.

    async def start_command(
        self,
        argv: list[str],
        *,
        command: str,
        description: str,
        tool_use_id: str,
        cwd: str,
        environment: Mapping[str, str],
        timeout_seconds: float,
    ) -> Task:
        """Raises ToolError if it cannot be started."""
        if self._ended:
            raise ToolError("The session is ending: nothing can be started in the background any more.")
        id = f"b{short(self._stamp.new_uuid(), 8)}"
        try:
            record = Record(self._place.folder() / f"{id}.output")
        except OSError as flaw:
            raise ToolError(f"The file for its output cannot be made: {flaw}") from None
        try:
            started = await self._processes.start(argv, cwd=cwd, environment=environment, take=record.take)
        except BaseException:
            record.close()
            record.path.unlink(missing_ok=True)
            raise
        task = Task(
            id=id,
            run_id=f"{in_base_36(round(self._stamp.seconds() * 1000))}-{self._stamp.new_uuid()[:8]}",
            description=description,
            command=command,
            tool_use_id=tool_use_id,
            process=started,
            record=record,
        )
        self._tasks[id] = task
        task.watcher = asyncio.create_task(self._watch(task, timeout_seconds))
        self._tell_live()
        self._tell(
            TaskStarted(
                task_id=id,
                run_id=task.run_id,
                tool_use_id=tool_use_id,
                description=description,
                is_backgrounded=True,
                task_type=task.kind,
            )
        )
        return task

    def find(self, task_id: str) -> Task | None:
        return self._tasks.get(task_id)

    def ids(self) -> list[str]:
        return list(self._tasks)

    def stop(self, task_id: str) -> None:
        """End it. Does nothing if it is over."""
        task = self._tasks[task_id]
        if task.status == RUNNING and task.watcher is not None:
            # A watcher that has not begun to watch would not end anything.
            task.watcher.cancel()
            task.process.drop()
            task.record.close()
            self._close(task, "killed", task.description)

    async def wait(self, task_id: str, timeout_seconds: float) -> None:
        """Until it is over, or the time is up."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._tasks[task_id].over.wait()
        except TimeoutError:
            return

    def mark_known(self, task_id: str) -> None:
        """The model has been told how it ended: no turn needs to tell it again."""
        notice = self._tasks[task_id].notice
        if notice is not None:
            self._inbox.drop(notice)

    def tail(self, task_id: str, limit_bytes: int) -> Tail:
        """The end of its output; empty if somebody took the file away."""
        try:
            with open(self._tasks[task_id].output_file, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - limit_bytes))
                data = file.read(limit_bytes)
        except OSError:
            size, data = 0, b""
        text = data.decode(errors="replace").replace("\0", "\ufffd")
        return Tail(text=text, total_bytes=size, is_cut=size > limit_bytes)

    # The end of the session.

    async def one_ended(self, ceiling_seconds: float | None) -> bool:
        """Wait until a task is over; False if none runs, or none ends in time."""
        watchers = {task.watcher for task in self._live() if task.watcher is not None and not task.watcher.done()}
        if not watchers:
            return False
        done, _ = await asyncio.wait(watchers, timeout=ceiling_seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)

    def end(self) -> None:
        """Stop what runs; nothing can be started any more."""
        self._ended = True
        for task in self._live():
            self.stop(task.id)

    # The life of a task.

    async def _watch(self, task: Task, timeout_seconds: float) -> None:
        try:
            end, timed_out = await self._processes.wait(task.process, timeout_seconds)
        finally:
            task.record.close()
        task.exit_code = None if end.flaw else shown_code(end.exit_code)
        status = "completed" if end.exit_code == 0 and not timed_out else "failed"
        how = how_it_ended(end, timeout_seconds if timed_out else None)
        self._close(task, status, f'Background command "{task.description}" {how}')
        self._wake_model(task, status, how)

    def _close(self, task: Task, status: str, summary: str) -> None:
        task.status = status
        task.over.set()
        at = round(self._stamp.seconds() * 1000)
        self._tell(TaskUpdated(task_id=task.id, run_id=task.run_id, patch={"status": status, "end_time": at}))
        self._tell(
            TaskNotification(
                task_id=task.id,
                run_id=task.run_id,
                tool_use_id=task.tool_use_id,
                status=TOLD_AS[status],
                output_file=task.output_file,
                summary=summary,
            )
        )
        self._tell_live()

    def _wake_model(self, task: Task, status: str, how: str) -> None:
        text = (
            f"<task-notification>\nThe background command {task.id} ({task.description}) {how}.\n"
            f"Status: {status}\nOutput file: {task.output_file}\n</task-notification>\n"
            "This was sent by the engine, not by the user. Read the output if you need it, and go on with the work."
        )
        origin = {"kind": NOTIFICATION, "producer": "session-task", "runId": task.run_id}
        task.notice = self._stamp.new_uuid()
        self._inbox.put(Prompt(content=[{"type": "text", "text": text}], uuid=task.notice, origin=origin))

    def _live(self) -> list[Task]:
        return [task for task in self._tasks.values() if task.status == RUNNING]

    def _tell_live(self) -> None:
        self._tell(BackgroundTasksChanged(tasks=[task.json() for task in self._live()]))


def how_it_ended(end: End, timed_out_after_seconds: float | None) -> str:
    if timed_out_after_seconds is not None:
        return f"was ended after {timed_out_after_seconds:g} s: its time was up"
    if end.flaw:
        return f"failed: {end.flaw}"
    if end.exit_code == 0:
        return "completed (exit code 0)"
    return f"failed with exit code {shown_code(end.exit_code)}"


def shown_code(code: int) -> int:
    """As a shell shows it: 128 and the signal's number for a command that was killed."""
    return 128 - code if code < 0 else code


def short(uuid: str, length: int) -> str:
    """Some letters and digits out of an id."""
    return in_base_36(int(uuid.replace("-", ""), 16))[-length:]


def in_base_36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = DIGITS[digit] + digits
    return digits.rjust(9, "0")
