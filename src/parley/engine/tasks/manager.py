"""Work that goes on behind the conversation: commands and subagents.

The host is told when a task begins and when it ends. The end of a task also becomes a
prompt, so that the model hears of it in a turn of its own; unless the task was stopped on
purpose, or the model knows already because it waited.

What begins and ends is put on record first, so that an engine that comes after a crash knows
what was lost (recovery/orphaned_tasks.py).

Not here: processes (workspace/process/processes.py), what a subagent does (agents/subagents.py), the tools
that start, read and stop tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from parley.engine.clock import Stamp
from parley.engine.session.prompt_queue import NOTIFICATION, Inbox, Prompt
from parley.engine.tasks.task import (
    RUNNING,
    CommandTask,
    Place,
    Tail,
    Task,
    how_it_ended,
    last_lines,
    notification,
    run_id,
    short,
    shown_code,
)
from parley.errors import SessionError, ToolError
from parley.protocol.base import Json, Message
from parley.protocol.messages.system import BackgroundTasksChanged, TaskStarted, TaskUpdated
from parley.tools.base import Order
from parley.workspace import private_files
from parley.workspace.process.output import BELOW, Output, Record
from parley.workspace.process.processes import Finished, Processes

if TYPE_CHECKING:
    from parley.engine.tasks.delivery import Owed
    from parley.engine.tasks.foreground import Attended


class Tasks:
    """The background tasks of a session. Every `task_id` is one that `find` knows."""

    def __init__(
        self,
        *,
        processes: Processes,
        place: Place,
        stamp: Stamp,
        tell: Callable[[Message], None],
        inbox: Inbox,
        note: Callable[[str, Json], None] = lambda kind, record: None,
        are_allowed: bool = True,
        reached: Callable[[], Awaitable[bool]],
    ) -> None:
        self._processes = processes
        self._place = place
        self._stamp = stamp
        self.tell = tell
        self.are_allowed = are_allowed
        """Whether anything may run in the background; else everything is waited for."""
        self._inbox = inbox
        self._note = note
        """Keeps a record in the session's log."""
        self._reached = reached
        """Waits until the host has all that it was told."""
        self._tasks: dict[str, Task] = {}
        self._ended = False
        self._attended: Attended | None = None
        """The commands that are waited for; None before the first."""
        self._owed: Owed | None = None

    # What tools and the host may ask.

    async def start_command(self, order: Order) -> CommandTask:
        """Raises ToolError if it cannot be started."""
        id = f"b{short(self._stamp.new_uuid(), 8)}"
        record = self.new_output(id)
        try:
            started = await self._processes.start(
                order.argv, cwd=order.cwd, environment=order.environment, take=record.take
            )
        except BaseException:
            record.close()
            with suppress(OSError):
                private_files.remove(record.path, below=BELOW)
            raise
        task = CommandTask(
            id=id,
            run_id=run_id(self._stamp),
            description=order.description,
            command=order.command,
            tool_use_id=order.tool_use_id,
            process=started,
            record=record,
        )
        self.begin(task, asyncio.create_task(self._watch(task, order.timeout_seconds)))
        return task

    async def run_command(self, order: Order, output: Output) -> Finished | CommandTask:
        """Wait for a command, unless the host sends it to the background (foreground.py). Raises ToolError."""
        if self._attended is None:
            from parley.engine.tasks.foreground import Attended

            self._attended = Attended(self, self._processes, self._stamp)
        return await self._attended.run(order, output)

    def send_behind(self, tool_use_id: str | None) -> bool:
        """Commands that are waited for, or that of one call, go on in the background; whether there is one."""
        return self.are_allowed and self._attended is not None and self._attended.move_behind(tool_use_id)

    def adopt(self, task: CommandTask, timeout_seconds: float, *, is_told: bool) -> None:
        """A command that runs already; `is_told` says whether the host knows of it."""
        watcher = asyncio.create_task(self._watch(task, timeout_seconds))
        if not is_told:
            self.begin(task, watcher)
            return
        self._tasks[task.id] = task
        task.watcher = watcher
        self.move_behind(task)

    def new_output(self, id: str, *, again: bool = False) -> Record:
        """The file for what a new task writes, or one that goes on. Raises ToolError."""
        if self._ended:
            raise ToolError("The session is ending: nothing can be started in the background any more.")
        try:
            return Record(self._place.folder() / f"{id}.output", again=again)
        except OSError as flaw:
            raise ToolError(f"The file for its output cannot be made: {flaw}") from None

    def begin(self, task: Task, watcher: asyncio.Task[None]) -> None:
        """Put a task on record and tell of it. The watcher has not run yet, and calls `finish` when it is over."""
        self._tasks[task.id] = task
        task.watcher = watcher
        if task.in_background:
            self._record_begin(task)
            self._tell_live()
        self.tell(
            TaskStarted(
                task_id=task.id,
                run_id=task.run_id,
                tool_use_id=task.tool_use_id,
                description=task.description,
                is_backgrounded=task.in_background,
                task_type=task.kind,
                **task.started(),
            )
        )

    def move_behind(self, task: Task) -> None:
        """Nobody waits for it any more."""
        task.in_background = True
        self._record_begin(task)
        self.tell(TaskUpdated(task_id=task.id, run_id=task.run_id, patch={"is_backgrounded": True}))
        self._tell_live()

    def _record_begin(self, task: Task) -> None:
        """What nobody waits for must not be forgotten. Raises SessionError."""
        try:
            self._note("task", {**task.json(), **task.recorded(), "status": RUNNING, "output_file": task.output_file})
        except SessionError:
            self.stop(task.id)
            raise

    def find(self, task_id: str) -> Task | None:
        return self._tasks.get(task_id)

    def ids(self) -> list[str]:
        return list(self._tasks)

    def stop(self, task_id: str) -> None:
        """End it. Does nothing if it is over."""
        task = self._tasks[task_id]
        if task.status == RUNNING:
            task.drop()
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
        task = self._tasks[task_id]
        if task.notice is not None and self._inbox.drop(task.notice):
            self._record_end({"task_id": task.id, "status": task.status, "known": [task.notice]})

    def tail(self, task_id: str, limit_bytes: int) -> Tail:
        return self._tasks[task_id].tail(limit_bytes)

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
        for task in self._running():
            self.stop(task.id)

    async def closed(self) -> None:
        """Until those that were stopped are gone."""
        watchers = [task.watcher for task in self._tasks.values() if task.watcher is not None]
        if watchers:
            await asyncio.wait(watchers)
        if self._owed is not None:
            await self._owed.closed()

    # The life of a task.

    async def _watch(self, task: CommandTask, timeout_seconds: float) -> None:
        try:
            end, timed_out = await self._processes.wait(task.process, timeout_seconds)
        finally:
            task.record.close()
        task.exit_code = None if end.flaw else shown_code(end.exit_code)
        status = "completed" if end.exit_code == 0 and not timed_out else "failed"
        how = how_it_ended(end, timeout_seconds if timed_out else None)
        news = f"The background command {task.id} ({task.description}) {how}."
        self.finish(task, status, f'Background command "{task.description}" {how}', news)

    def finish(self, task: Task, status: str, summary: str, news: str) -> None:
        """It is over by itself. Where nobody waits for it, the model hears the news in a turn of its own."""
        if task.status != RUNNING:
            return
        if task.in_background:
            task.notice = self._stamp.new_uuid()
        text = notification(news, status, task.output_file)
        self._close(task, status, summary, text)
        if task.notice is not None:
            origin = {"kind": NOTIFICATION, "producer": "session-task", "runId": task.run_id}
            self._inbox.put(Prompt(content=[{"type": "text", "text": text}], uuid=task.notice, origin=origin))

    def _close(self, task: Task, status: str, summary: str, text: str = "") -> None:
        task.status = status
        task.over.set()
        lines = last_lines(task, status, summary, self._stamp)
        end = {"task_id": task.id, "status": status, "notice": task.notice, "text": text}
        if task.in_background and not self._ended:
            self.owed().settle(end, lines)
        else:
            # What ends with its session is over for whoever ended that.
            if task.in_background:
                self._record_end(end)
            for line in lines:
                self.tell(line)
        if task.in_background:
            self._tell_live()

    def owed(self) -> Owed:
        """Who sees to it that the host hears of ends; loaded with the first."""
        if self._owed is None:
            from parley.engine.tasks.delivery import Owed

            self._owed = Owed(self._note, self.tell, self._reached)
        return self._owed

    def _record_end(self, end: Json) -> None:
        with suppress(SessionError):  # the log is broken, and whoever writes to it next will say so
            self._note("task", end)

    def _running(self) -> list[Task]:
        return [task for task in self._tasks.values() if task.status == RUNNING]

    def _live(self) -> list[Task]:
        return [task for task in self._running() if task.in_background]

    def _tell_live(self) -> None:
        self.tell(BackgroundTasksChanged(tasks=[task.json() for task in self._live()]))
