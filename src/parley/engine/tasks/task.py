"""One piece of work behind the conversation: a command, or a subagent."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import ClassVar

from parley.engine.clock import Stamp
from parley.errors import ToolError
from parley.protocol.base import UNSET, Json, Struct, UnsetType
from parley.protocol.messages.system import TaskNotification, TaskUpdated, TaskUsage
from parley.workspace import private_files
from parley.workspace.process.output import BELOW, Record, private_folder
from parley.workspace.process.processes import Command, End

RUNNING = "running"
TOLD_AS = {"completed": "completed", "failed": "failed", "killed": "stopped"}
"""What a notification calls a task's last status."""
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


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


class Task:
    """What all tasks have."""

    kind: ClassVar[str] = ""

    def __init__(self, *, id: str, run_id: str, description: str, tool_use_id: str, record: Record) -> None:
        self.id = id
        self.run_id = run_id
        self.description = description
        self.tool_use_id = tool_use_id
        self.record = record
        self.output_file = str(record.path)
        self.command = ""
        self.status = RUNNING
        self.exit_code: int | None = None
        self.in_background = True
        """Whether nobody waits for it, so that its end is news."""
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

    def started(self) -> Json:
        """What its first line says beside."""
        return {}

    def recorded(self) -> Json:
        """What the log says of it beside."""
        return {}

    def cwd(self) -> str | None:
        """Where it works, if that is known."""
        return None

    def drop(self) -> None:
        """Let go of what it holds, at once."""
        if self.watcher is not None:
            self.watcher.cancel()
        self.record.close()

    def usage(self) -> TaskUsage | UnsetType:
        return UNSET

    def tail(self, limit_bytes: int) -> Tail:
        """The end of its output; empty if somebody took the file away."""
        try:
            with open(private_files.open_file(self.output_file, os.O_RDONLY, below=BELOW), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - limit_bytes))
                data = file.read(limit_bytes)
        except OSError:
            size, data = 0, b""
        text = data.decode(errors="replace").replace("\0", "\ufffd")
        return Tail(text=text, total_bytes=size, is_cut=size > limit_bytes)


class CommandTask(Task):
    kind: ClassVar[str] = "local_bash"

    def __init__(
        self,
        *,
        id: str,
        run_id: str,
        description: str,
        tool_use_id: str,
        record: Record,
        command: str,
        process: Command,
    ) -> None:
        super().__init__(id=id, run_id=run_id, description=description, tool_use_id=tool_use_id, record=record)
        self.command = command
        self.process = process

    def drop(self) -> None:
        # A watcher that has not begun to watch would not end anything.
        super().drop()
        self.process.drop()


def run_id(stamp: Stamp) -> str:
    return f"{in_base_36(round(stamp.seconds() * 1000))}-{stamp.new_uuid()[:8]}"


def last_lines(task: Task, status: str, summary: str, stamp: Stamp) -> tuple[TaskUpdated, TaskNotification]:
    """How a host hears that it is over."""
    at = round(stamp.seconds() * 1000)
    return (
        TaskUpdated(
            task_id=task.id,
            run_id=task.run_id,
            patch={"status": status, "end_time": at},
            uuid=stamp.new_uuid(),
        ),
        TaskNotification(
            task_id=task.id,
            run_id=task.run_id,
            tool_use_id=task.tool_use_id,
            status=TOLD_AS[status],
            output_file=task.output_file,
            summary=summary,
            usage=task.usage(),
            uuid=stamp.new_uuid(),
        ),
    )


def short(uuid: str, length: int) -> str:
    """Some letters and digits out of an id."""
    return in_base_36(int(uuid.replace("-", ""), 16))[-length:]


def in_base_36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = DIGITS[digit] + digits
    return digits.rjust(9, "0")


# What is said of one that is over.


def notification(news: str, status: str, output_file: str) -> str:
    """What the model reads of a task that is over."""
    return (
        f"<task-notification>\n{news}\nStatus: {status}\nOutput file: {output_file}\n</task-notification>\n"
        "This was sent by the engine, not by the user. Read the output if you need it, and go on with the work."
    )


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
