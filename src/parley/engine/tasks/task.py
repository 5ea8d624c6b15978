"""A background task: a command or a subagent."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import ClassVar

from parley.engine.clock import Clock
from parley.errors import ToolError
from parley.protocol.base import UNSET, Json, Struct, UnsetType
from parley.protocol.messages.system import TaskNotification, TaskUpdated, TaskUsage
from parley.workspace import private_files
from parley.workspace.process.processes import BELOW, CommandEnd, OutputRecord, RunningCommand, private_folder

RUNNING = "running"
WIRE_STATUS = {"completed": "completed", "failed": "failed", "killed": "stopped"}
"""The final status of a task, as a notification spells it."""
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class TaskTail(Struct, frozen=True, kw_only=True):
    """The end of a task's output."""

    text: str
    total_bytes: int
    is_cut: bool


class OutputDirectory(Struct, frozen=True, kw_only=True):
    """The folder for output files: a private one below the temporary folder, or else one of the session."""

    temporary: Path
    names: tuple[str, ...]
    fallback: Path

    def create(self) -> Path:
        try:
            return private_folder(self.temporary, *self.names)
        except ToolError:
            return self.fallback


class TaskInfo(Struct, frozen=True, kw_only=True):
    """What identifies a task, and where its output goes."""

    id: str
    run_id: str
    description: str
    tool_use_id: str
    """The call that started it."""
    record: OutputRecord


class SessionTask:
    """The common part of all tasks."""

    kind: ClassVar[str] = ""
    is_ambient: ClassVar[bool] = False
    """It watches something, so that clients do not show it as activity."""

    def __init__(self, info: TaskInfo) -> None:
        self.id = info.id
        self.run_id = info.run_id
        self.description = info.description
        self.tool_use_id = info.tool_use_id
        self.record = info.record
        self.output_file = str(info.record.path)
        self.command = ""
        self.status = RUNNING
        self.exit_code: int | None = None
        self.error = ""
        """Why it failed; empty if it did not."""
        self.in_background = True
        """No call waits for it, so its end is reported."""
        self.notice: str | None = None
        """The id of the prompt that reports its end to the model."""
        self.watcher: asyncio.Task[None] | None = None
        self.finished = asyncio.Event()

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
            with open(private_files.open_file(self.output_file, os.O_RDONLY, below=BELOW), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - limit_bytes))
                data = file.read(limit_bytes)
        except OSError:
            size, data = 0, b""
        text = data.decode(errors="replace").replace("\0", "\ufffd")
        return TaskTail(text=text, total_bytes=size, is_cut=size > limit_bytes)


class CommandTask(SessionTask):
    kind: ClassVar[str] = "local_bash"
    noun: ClassVar[str] = "background command"

    def __init__(self, info: TaskInfo, command: str, process: RunningCommand) -> None:
        super().__init__(info)
        self.command = command
        self.process = process

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


def notification_text(text: str, status: str, output_file: str) -> str:
    """The text for the model about a finished task."""
    return (
        f"<task-notification>\n{text}\nStatus: {status}\nOutput file: {output_file}\n</task-notification>\n"
        "This was sent by the engine, not by the user. Read the output if you need it, and continue with the work."
    )


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
