"""Background tasks: commands and subagents.

The client is notified when a task starts and ends. The end also becomes a prompt, so that the model is told in a
turn of its own, unless the task was stopped on purpose or the model waited for it.

A command in the foreground becomes a task when the client moves it to the background. As in recordings of Claude Code,
it is announced as one if it takes longer than a few seconds.

Starts and ends are recorded first, so that after a crash the next process knows what was lost
(session/recover.py).

See also: `workspace/process/processes.py` for processes, `agents/subagents.py` for subagents, `tools/background.py` for
the tools that read and stop tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from parley.engine.clock import Clock
from parley.engine.session.config import SessionConfig
from parley.engine.session.journal import Journal
from parley.engine.session.outbox import Outbox
from parley.engine.session.prompts import NOTIFICATION, Prompt, PromptQueue
from parley.errors import SessionError, ToolError
from parley.protocol.base import UNSET, Json, Message, Struct, UnsetType, to_builtins
from parley.protocol.messages.system import (
    BackgroundTasksChanged,
    TaskNotification,
    TaskStarted,
    TaskUpdated,
    TaskUsage,
)
from parley.tools.base import CommandOrder
from parley.workspace.process.processes import (
    FILE_CAP_BYTES,
    CommandEnd,
    CommandOutput,
    Finished,
    OutputFiles,
    OutputRecord,
    RunningCommand,
    Take,
)

if TYPE_CHECKING:
    from parley.tools.schedule import ScheduledJob


WIRE_STATUS = {"completed": "completed", "failed": "failed", "killed": "stopped"}
"""The final status of a task, as a notification spells it."""
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
AGENT = "local_agent"
ANNOUNCE_AFTER_SECONDS = 3.0
BACKGROUND_TIMEOUT_SECONDS = 1800.0
"""The time limit of a command that was moved to the background."""


class TaskTail(Struct, frozen=True, kw_only=True):
    """The end of a task's output."""

    text: str
    total_bytes: int
    is_cut: bool


class TaskInfo(Struct, frozen=True, kw_only=True):
    """What identifies a task, and where its output goes."""

    id: str
    run_id: str
    description: str
    tool_use_id: str
    """The call that started it."""
    record: OutputRecord | None = None
    """A command in the foreground has none."""
    files: OutputFiles = OutputFiles()
    """Where the record is."""


class SessionTask:
    """The common part of all tasks."""

    kind: ClassVar[str] = ""
    is_ambient: ClassVar[bool] = False
    """It watches something, so that clients do not show it as activity."""
    record: OutputRecord

    def __init__(self, info: TaskInfo) -> None:
        self.id = info.id
        self.run_id = info.run_id
        self.description = info.description
        self.tool_use_id = info.tool_use_id
        self._files = info.files
        self.output_file = ""
        if info.record is not None:
            self.keep_output(info.record)
        self.command = ""
        self.status = RUNNING
        self.exit_code: int | None = None
        self.error = ""
        """Why it failed; empty if it did not."""
        self.in_background = True
        """No call waits for it, so its end is reported."""
        self.moved = asyncio.Event()
        """Set when its caller stops waiting."""
        self.is_announced = False
        self.notice: str | None = None
        """The id of the prompt that reports its end to the model."""
        self.watcher: asyncio.Task[None] | None = None
        self.finished = asyncio.Event()

    def keep_output(self, record: OutputRecord) -> None:
        self.record, self.output_file = record, str(record.path)

    def json(self) -> Json:
        """The entry in the list of live tasks."""
        return {
            "task_id": self.id,
            "run_id": self.run_id,
            "task_type": self.kind,
            "description": self.description,
            **({"ambient": True} if self.is_ambient else {}),
        }

    def start_fields(self) -> Json:
        """More fields for `task_started`."""
        return {}

    def log_fields(self) -> Json:
        """More fields for the log."""
        return {}

    def cwd(self) -> str | None:
        """Its working directory, if known."""
        return None

    def drop(self) -> None:
        """Release everything at once."""
        if self.watcher is not None:
            self.watcher.cancel()
        self.record.close()

    def usage(self) -> TaskUsage | UnsetType:
        return UNSET

    def tail(self, limit_bytes: int) -> TaskTail:
        """The end of its output; empty if the file was removed."""
        try:
            size, data = self._files.tail(self.record.path, limit_bytes)
        except OSError:
            size, data = 0, b""
        text = data.decode(errors="replace").replace("\0", "\ufffd")
        return TaskTail(text=text, total_bytes=size, is_cut=size > limit_bytes)


class CommandTask(SessionTask):
    kind: ClassVar[str] = "local_bash"
    noun: ClassVar[str] = "background command"

    process: RunningCommand
    """Set when it has started."""

    def __init__(self, info: TaskInfo, command: str, sink: Callable[[bytes], None]) -> None:
        super().__init__(info)
        self.command = command
        self.sink = sink

    def take(self, data: bytes) -> None:
        """Its output."""
        self.sink(data)

    def drop(self) -> None:
        # A watcher that has not started would not end the process.
        super().drop()
        self.process.drop()

    def flush(self) -> None:
        """The command has ended by itself, and all its output is here."""


def new_run_id(clock: Clock) -> str:
    return f"{to_base36(round(clock.seconds() * 1000))}-{clock.new_uuid()[:8]}"


def end_messages(task: SessionTask, status: str, summary: str, clock: Clock) -> tuple[TaskUpdated, TaskNotification]:
    """The messages that report the end of a task."""
    at = round(clock.seconds() * 1000)
    return (
        TaskUpdated(
            task_id=task.id,
            run_id=task.run_id,
            patch={"status": status, "end_time": at, **({"error": task.error} if task.error else {})},
            uuid=clock.new_uuid(),
        ),
        TaskNotification(
            task_id=task.id,
            run_id=task.run_id,
            tool_use_id=task.tool_use_id,
            status=WIRE_STATUS[status],
            output_file=task.output_file,
            summary=summary,
            usage=task.usage(),
            ambient=True if task.is_ambient else UNSET,
            uuid=clock.new_uuid(),
        ),
    )


def short_id(uuid: str, length: int) -> str:
    """The last base-36 digits of an id."""
    return to_base36(int(uuid.replace("-", ""), 16))[-length:]


def to_base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = DIGITS[digit] + digits
    return digits.rjust(9, "0")


def describe_end(end: CommandEnd, timed_out_after_seconds: float | None) -> str:
    if timed_out_after_seconds is not None:
        return f"reached its time limit of {timed_out_after_seconds:g} s and was ended"
    if end.error:
        return f"failed: {end.error}"
    if end.exit_code == 0:
        return "completed (exit code 0)"
    return f"failed with exit code {shell_exit_code(end.exit_code)}"


def shell_exit_code(code: int) -> int:
    """The code as a shell shows it: 128 plus the signal number for a killed command."""
    return 128 - code if code < 0 else code


class TaskManager:
    """The background tasks of a session. Every `task_id` is one that `find` knows."""

    def __init__(self, config: SessionConfig, outbox: Outbox, journal: Journal, prompt_queue: PromptQueue) -> None:
        self._processes = config.workspace.processes
        self.outputs = self._processes.outputs
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
        self._awaited: dict[str, CommandTask] = {}
        """The commands in the foreground."""
        self._notifications: PendingNotifications | None = None

    # For tools and the client.

    async def start_command(self, order: CommandOrder) -> CommandTask:
        """Raises ToolError if it cannot be started."""
        info, record = self._new_recorded(order)
        task = CommandTask(info, order.command, record.take)
        task.process = await self._start_recorded(order, record, task.take)
        self.register(task, asyncio.create_task(self._watch(task, order.timeout_seconds)))
        return task

    async def start_monitor(self, order: CommandOrder) -> CommandTask:
        """Start a command whose lines are reported to the model. Raises ToolError."""
        from parley.engine.tasks.wakeups import LineReporter, MonitorTask

        info, record = self._new_recorded(order)
        about = {"task_id": info.id, "run_id": info.run_id, "description": info.description}
        reporter = LineReporter(self._prompt_queue, self._clock.new_uuid, {**about, "output_file": str(record.path)})
        task = MonitorTask(info, order.command, record.take, reporter)
        task.process = await self._start_recorded(order, record, task.take, record.take)
        if task.process.feed is not None:
            task.process.feed.close()  # its stdin is empty, like that of other commands
        self.register(task, asyncio.create_task(self._watch(task, order.timeout_seconds)))
        return task

    def _new_info(self, order: CommandOrder) -> TaskInfo:
        return TaskInfo(
            id=f"b{short_id(self._clock.new_uuid(), 8)}",
            files=self.outputs,
            run_id=new_run_id(self._clock),
            description=order.description,
            tool_use_id=order.tool_use_id,
        )

    def _new_recorded(self, order: CommandOrder) -> tuple[TaskInfo, OutputRecord]:
        """Raises ToolError if the output file cannot be created."""
        info = self._new_info(order)
        record = self.new_output(info.id)
        return msgspec.structs.replace(info, record=record), record

    async def _start_recorded(
        self, order: CommandOrder, record: OutputRecord, take: Take, take_errors: Take | None = None
    ) -> RunningCommand:
        """Raises ToolError; then the output file is removed."""
        try:
            return await self._processes.start(order, take, take_errors)
        except BaseException:
            record.close()
            with suppress(OSError):
                self.outputs.remove(record.path)
            raise

    def new_output(self, id: str, *, again: bool = False) -> OutputRecord:
        """The output file of a new task, or `again` of a resumed one. Raises ToolError."""
        if self._is_closed:
            raise ToolError("The session is ending: nothing can be started in the background.")
        try:
            return self.outputs.open(self._directory.create() / f"{id}.output", again=again)
        except OSError as exc:
            raise ToolError(f"The output file cannot be created: {exc}") from None

    def register(self, task: SessionTask, watcher: asyncio.Task[None]) -> None:
        """Record and announce a task. Its watcher has not run yet and calls `finish` at the end."""
        self._tasks[task.id] = task
        task.watcher = watcher
        if task.in_background:
            self._append_start(task)
            self._send_live()
        self._announce(task)

    def _announce(self, task: SessionTask) -> None:
        task.is_announced = True
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

    def move_to_background(self, tool_use_id: str | None) -> bool:
        """End the wait for all tasks in the foreground, or for that of a call. Returns whether there is one."""
        waiting = [
            task
            for task in (*self._running(), *self._awaited.values())
            if not task.in_background and tool_use_id in (None, task.tool_use_id)
        ]
        for task in waiting if self.are_allowed else ():
            if task.id in self._tasks:
                self._mark_background(task)
            task.moved.set()
        return self.are_allowed and bool(waiting)

    def _mark_background(self, task: SessionTask) -> None:
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

    # Commands in the foreground.

    async def run_command(self, order: CommandOrder, output: CommandOutput) -> Finished | CommandTask:
        """Run a command until it ends or is moved to the background: how it ended, or the task that it became.

        Cancelling kills it. Raises ToolError.
        """
        task = CommandTask(self._new_info(order), order.command, output.take)
        task.in_background = False
        try:
            task.process = await self._processes.start(order, task.take)
            self._awaited[task.id] = task
            end = await self._wait_end(task, order.timeout_seconds)
        finally:
            output.close()
            self._awaited.pop(task.id, None)
        if end is None:
            return self._continue_in_background(task, output)
        self._end_in_foreground(task, "completed" if end[0].exit_code == 0 and not end[1] else "failed")
        return self._processes.finished(*end, output)

    async def _wait_end(self, task: CommandTask, seconds: float) -> tuple[CommandEnd, bool] | None:
        """How it ended, and whether it timed out; None if it was moved to the background."""
        timer = asyncio.get_running_loop().call_later(ANNOUNCE_AFTER_SECONDS, self._announce, task)
        moved, ended = asyncio.ensure_future(task.moved.wait()), task.process.ended
        try:
            either: set[asyncio.Future[Any]] = {ended, moved}
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if task.moved.is_set() and not ended.done():
                return None
            return await self._processes.wait(task.process, 0)
        except asyncio.CancelledError:
            await self._processes.kill(task.process)
            self._end_in_foreground(task, "stopped")
            raise
        finally:
            timer.cancel()
            moved.cancel()

    def _continue_in_background(self, task: CommandTask, output: CommandOutput) -> CommandTask:
        """Raises ToolError; then the process is killed."""
        try:
            record = self.new_output(task.id)
        except ToolError:
            task.process.drop()
            self._end_in_foreground(task, "stopped")
            raise
        for part in read_output(output):
            record.take(part)
        task.keep_output(record)
        task.sink = record.take
        watcher = asyncio.create_task(self._watch(task, BACKGROUND_TIMEOUT_SECONDS))
        if task.is_announced:
            self._tasks[task.id], task.watcher = task, watcher
            self._mark_background(task)
        else:
            task.in_background = True
            self.register(task, watcher)
        return task

    def _end_in_foreground(self, task: CommandTask, status: str) -> None:
        if task.is_announced:
            self.send(
                TaskNotification(
                    task_id=task.id,
                    run_id=task.run_id,
                    tool_use_id=task.tool_use_id,
                    status=status,
                    output_file="",
                    summary=task.description,
                )
            )

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


def read_output(output: CommandOutput) -> list[bytes]:
    """The whole output so far."""
    if output.path is None:
        return [bytes(output.kept)]
    try:
        return [output.files.tail(output.path, FILE_CAP_BYTES)[1]]
    except OSError:
        return [bytes(output.kept)]


RUNNING = "running"
"""The status of a task that has not ended."""
CLOSE_TIMEOUT_SECONDS = 0.5
"""How long the end of a session waits for a client that does not read."""


class PendingNotifications:
    def __init__(
        self,
        append_event: Callable[[str, Json], None],
        send: Callable[[Message], None],
        drain: Callable[[], Awaitable[bool]],
    ) -> None:
        self._append_event = append_event
        self._send = send
        self._drain = drain
        self._marking: set[asyncio.Task[None]] = set()

    def append_and_send(self, end: Json, lines: Sequence[Message]) -> None:
        """Record the end of a task, then send its messages."""
        with suppress(SessionError):  # the next write to the log reports the error
            self._append_event("task", {**end, "lines": [to_builtins(line) for line in lines]})
        self.send(end, lines)

    def send(self, end: Json, lines: Sequence[Message]) -> None:
        """Send recorded messages."""
        for line in lines:
            self._send(line)
        mark = {"task_id": end["task_id"], "status": end["status"], "told": getattr(lines[-1], "uuid", None)}
        marking = asyncio.create_task(self._mark_delivered(mark))
        self._marking.add(marking)
        marking.add_done_callback(self._marking.discard)

    async def _mark_delivered(self, mark: Json) -> None:
        if await self._drain():
            with suppress(SessionError):
                self._append_event("task", mark)

    async def close(self) -> None:
        """Wait until everything is marked, up to a limit."""
        if self._marking:
            _, late = await asyncio.wait(self._marking, timeout=CLOSE_TIMEOUT_SECONDS)
            for marking in late:
                marking.cancel()


def notification_text(text: str, status: str, output_file: str) -> str:
    """The text for the model about a finished task."""
    return (
        f"<task-notification>\n{text}\nStatus: {status}\nOutput file: {output_file}\n</task-notification>\n"
        "This was sent by the engine, not by the user. Read the output if you need it, and continue with the work."
    )
