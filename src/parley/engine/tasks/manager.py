"""Background tasks: commands and subagents.

The client is notified when a task starts and ends. The end also becomes a prompt, so that the model is told in a
turn of its own, unless the task was stopped on purpose or the model waited for it.

Starts and ends are recorded first, so that after a crash the next process knows what was lost
(recovery/orphaned_tasks.py).

See also: `workspace/process/processes.py` for processes, `agents/subagents.py` for subagents, `tools/shell/` for the
tools that start, read and stop tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from parley.engine.session.config import SessionConfig
from parley.engine.session.journal import Journal
from parley.engine.session.outbox import Outbox
from parley.engine.session.prompt_queue import NOTIFICATION, Prompt, PromptQueue
from parley.engine.tasks.task import (
    RUNNING,
    CommandTask,
    SessionTask,
    TaskInfo,
    TaskTail,
    describe_end,
    end_messages,
    new_run_id,
    notification_text,
    shell_exit_code,
    short_id,
)
from parley.errors import SessionError, ToolError
from parley.protocol.base import UNSET, Json
from parley.protocol.messages.system import BackgroundTasksChanged, TaskStarted, TaskUpdated
from parley.tools.base import CommandOrder
from parley.workspace import private_files
from parley.workspace.process.output import BELOW, CommandOutput, OutputRecord
from parley.workspace.process.processes import Finished, RunningCommand

if TYPE_CHECKING:
    from parley.engine.tasks.delivery import PendingNotifications
    from parley.engine.tasks.foreground import ForegroundCommand
    from parley.tools.schedule.jobs import ScheduledJob


AGENT = "local_agent"


class TaskManager:
    """The background tasks of a session. Every `task_id` is one that `find` knows."""

    def __init__(self, config: SessionConfig, outbox: Outbox, journal: Journal, prompt_queue: PromptQueue) -> None:
        self._processes = config.workspace.processes
        self._directory = config.task_output
        self._clock = outbox.clock
        self.send = outbox.send
        self.are_allowed = not config.options.disable_background_tasks
        """Whether background tasks are allowed."""
        self._prompt_queue = prompt_queue
        self._journal = journal
        self._append_event = journal.append_event
        journal.carried.append(lambda: [("task", start_record(task)) for task in self._live()])
        self._drain = outbox.host.drain
        """Waits until all messages are written."""
        self._tasks: dict[str, SessionTask] = {}
        self._is_closed = False
        self._foreground: ForegroundCommand | None = None
        """The foreground commands; None before the first."""
        self._notifications: PendingNotifications | None = None

    # For tools and the client.

    async def start_command(self, order: CommandOrder) -> CommandTask:
        """Raises ToolError if it cannot be started."""
        info = self._new_info(order)
        started = await self._start_process(order, info.record, info.record.take)
        task = CommandTask(info, order.command, started)
        self.register(task, asyncio.create_task(self._watch(task, order.timeout_seconds)))
        return task

    async def start_monitor(self, order: CommandOrder) -> CommandTask:
        """Start a command whose lines are reported to the model. Raises ToolError."""
        from parley.engine.tasks.monitor import LineReporter, MonitorTask

        info = self._new_info(order)
        about = {"task_id": info.id, "run_id": info.run_id, "description": info.description}
        about["output_file"] = str(info.record.path)
        reporter = LineReporter(self._prompt_queue, self._clock.new_uuid, about)

        def take(data: bytes) -> None:
            info.record.take(data)
            reporter.take(data)

        started = await self._start_process(order, info.record, take, info.record.take)
        if started.feed is not None:
            started.feed.close()  # its stdin is empty, like that of other commands
        task = MonitorTask(info, order.command, started, reporter)
        self.register(task, asyncio.create_task(self._watch(task, order.timeout_seconds)))
        return task

    def _new_info(self, order: CommandOrder) -> TaskInfo:
        """Raises ToolError if the output file cannot be created."""
        id = f"b{short_id(self._clock.new_uuid(), 8)}"
        return TaskInfo(
            id=id,
            record=self.new_output(id),
            run_id=new_run_id(self._clock),
            description=order.description,
            tool_use_id=order.tool_use_id,
        )

    async def _start_process(
        self,
        order: CommandOrder,
        record: OutputRecord,
        take: Callable[[bytes], None],
        take_errors: Callable[[bytes], None] | None = None,
    ) -> RunningCommand:
        """Raises ToolError; then the output file is removed."""
        try:
            return await self._processes.start(
                order.argv, cwd=order.cwd, environment=order.environment, take=take, take_errors=take_errors
            )
        except BaseException:
            record.close()
            with suppress(OSError):
                private_files.remove(record.path, below=BELOW)
            raise

    async def run_command(self, order: CommandOrder, output: CommandOutput) -> Finished | CommandTask:
        """Run a command in the foreground; the client can move it to the background. Raises ToolError."""
        if self._foreground is None:
            from parley.engine.tasks.foreground import ForegroundCommand

            self._foreground = ForegroundCommand(self, self._processes, self._clock)
        return await self._foreground.run(order, output)

    def move_command_to_background(self, tool_use_id: str | None) -> bool:
        """Move foreground commands, or that of one call, to the background. Returns whether there is one."""
        return self.are_allowed and self._foreground is not None and self._foreground.move_to_background(tool_use_id)

    def adopt(self, task: CommandTask, timeout_seconds: float, *, is_announced: bool) -> None:
        """Take over a running command. `is_announced` says whether the client knows it."""
        watcher = asyncio.create_task(self._watch(task, timeout_seconds))
        if not is_announced:
            self.register(task, watcher)
            return
        self._tasks[task.id] = task
        task.watcher = watcher
        self.move_to_background(task)

    def new_output(self, id: str, *, again: bool = False) -> OutputRecord:
        """The output file of a new task, or `again` of a resumed one. Raises ToolError."""
        if self._is_closed:
            raise ToolError("The session is ending: nothing can be started in the background.")
        try:
            return OutputRecord(self._directory.create() / f"{id}.output", again=again)
        except OSError as exc:
            raise ToolError(f"The output file cannot be created: {exc}") from None

    def register(self, task: SessionTask, watcher: asyncio.Task[None]) -> None:
        """Record and announce a task. Its watcher has not run yet and calls `finish` at the end."""
        self._tasks[task.id] = task
        task.watcher = watcher
        if task.in_background:
            self._append_start(task)
            self._send_live()
        self.send(
            TaskStarted(
                task_id=task.id,
                run_id=task.run_id,
                tool_use_id=task.tool_use_id,
                description=task.description,
                is_backgrounded=task.in_background,
                task_type=task.kind,
                ambient=True if task.is_ambient else UNSET,
                **task.start_fields(),
            )
        )

    def move_to_background(self, task: SessionTask) -> None:
        """Mark a task as running in the background."""
        task.in_background = True
        self._append_start(task)
        self.send(TaskUpdated(task_id=task.id, run_id=task.run_id, patch={"is_backgrounded": True}))
        self._send_live()

    def _append_start(self, task: SessionTask) -> None:
        """Record a background task, for recovery after a crash. Raises SessionError."""
        try:
            self._append_event("task", start_record(task))
        except SessionError:
            self.stop(task.id)
            raise

    def find(self, task_id: str) -> SessionTask | None:
        return self._tasks.get(task_id)

    def ids(self) -> list[str]:
        return list(self._tasks)

    def stop(self, task_id: str) -> None:
        """Stop a task. Does nothing if it has ended."""
        task = self._tasks[task_id]
        if task.status == RUNNING:
            task.drop()
            self._close(task, "killed", task.description)

    def has_agents(self) -> bool:
        """Whether a background agent runs."""
        return any(task.kind == AGENT for task in self._live())

    def stop_agents(self) -> None:
        """Stop the background agents. Commands go on."""
        for task in self._live():
            if task.kind == AGENT:
                self.stop(task.id)

    async def wait(self, task_id: str, timeout_seconds: float) -> None:
        """Wait for the end of a task, up to a limit."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._tasks[task_id].finished.wait()
        except TimeoutError:
            return

    def mark_known(self, task_id: str) -> None:
        """Cancel the prompt about the end of a task: the model knows already."""
        task = self._tasks[task_id]
        if task.notice is not None and self._prompt_queue.remove(task.notice):
            self._append_end({"task_id": task.id, "status": task.status, "known": [task.notice]})

    def list_scheduled(self) -> list[ScheduledJob]:
        """The prompts that will wake the session later."""
        return [] if self._journal.schedule is None else list(self._journal.schedule.jobs.values())

    def tail(self, task_id: str, limit_bytes: int) -> TaskTail:
        return self._tasks[task_id].tail(limit_bytes)

    # End of the session.

    async def wait_any(self, ceiling_seconds: float | None) -> bool:
        """Wait until a task ends or has something to report; False if none runs, or nothing happens in time."""
        watchers = {task.watcher for task in self._live() if task.watcher is not None and not task.watcher.done()}
        if not watchers:
            return False
        arrival = asyncio.create_task(self._prompt_queue.wait_arrival())  # a monitor reports before it ends
        try:
            done, _ = await asyncio.wait(
                {*watchers, arrival}, timeout=ceiling_seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            arrival.cancel()
        return bool(done)

    def end(self) -> None:
        """Stop all tasks; no more can be started."""
        self._is_closed = True
        for task in self._running():
            self.stop(task.id)

    async def wait_closed(self) -> None:
        """Wait for the stopped tasks."""
        watchers = [task.watcher for task in self._tasks.values() if task.watcher is not None]
        if watchers:
            await asyncio.wait(watchers)
        if self._notifications is not None:
            await self._notifications.close()

    # One task.

    async def _watch(self, task: CommandTask, timeout_seconds: float) -> None:
        try:
            end, timed_out = await self._processes.wait(task.process, timeout_seconds)
        finally:
            task.record.close()
        task.exit_code = None if end.error else shell_exit_code(end.exit_code)
        status = "completed" if end.exit_code == 0 and not timed_out else "failed"
        how = describe_end(end, timeout_seconds if timed_out else None)
        task.error = how if status == "failed" else ""
        task.flush()
        news = f"The {task.noun} {task.id} ({task.description}) {how}."
        self.finish(task, status, f'{task.noun.capitalize()} "{task.description}" {how}', news)

    def finish(self, task: SessionTask, status: str, summary: str, notice: str) -> None:
        """Record the end of a task. The end of a background task becomes a prompt."""
        if task.status != RUNNING:
            return
        if task.in_background:
            task.notice = self._clock.new_uuid()
        text = notification_text(notice, status, task.output_file)
        self._close(task, status, summary, text)
        if task.notice is not None:
            origin = {"kind": NOTIFICATION, "producer": "session-task", "runId": task.run_id}
            self._prompt_queue.put(Prompt(content=[{"type": "text", "text": text}], uuid=task.notice, origin=origin))

    def _close(self, task: SessionTask, status: str, summary: str, text: str = "") -> None:
        task.status = status
        task.finished.set()
        lines = end_messages(task, status, summary, self._clock)
        end = {"task_id": task.id, "status": status, "notice": task.notice, "text": text}
        if task.in_background and not self._is_closed:
            self.get_notifications().append_and_send(end, lines)
        else:
            # The session is ending, so the messages need no delivery guarantee.
            if task.in_background:
                self._append_end(end)
            for line in lines:
                self.send(line)
        if task.in_background:
            self._send_live()

    def get_notifications(self) -> PendingNotifications:
        """Delivers the messages about ends; loaded with the first."""
        if self._notifications is None:
            from parley.engine.tasks.delivery import PendingNotifications

            self._notifications = PendingNotifications(self._append_event, self.send, self._drain)
        return self._notifications

    def _append_end(self, end: Json) -> None:
        with suppress(SessionError):  # the next write to the log reports the error
            self._append_event("task", end)

    def _running(self) -> list[SessionTask]:
        return [task for task in self._tasks.values() if task.status == RUNNING]

    def _live(self) -> list[SessionTask]:
        return [task for task in self._running() if task.in_background]

    def _send_live(self) -> None:
        self.send(BackgroundTasksChanged(tasks=[task.json() for task in self._live()]))


def start_record(task: SessionTask) -> Json:
    """What the log says of a task that runs in the background."""
    return {**task.json(), **task.log_fields(), "status": RUNNING, "output_file": task.output_file}
