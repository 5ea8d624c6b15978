"""Commands and output files of a remote workspace: the engine's side.

Output arrives in frames. The engine says how much it has taken, and the server reads no more from the command than a
window beyond that, so that a command whose output is not wanted waits as it would for a slow terminal. After a lost
connection the server continues from what was taken. The output of a background command goes directly to its file on
the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

from parley.errors import ToolError
from parley.workspace.process.processes import (
    HURRY_SECONDS,
    MAX_INPUT_BYTES,
    CommandEnd,
    InputFeed,
    OutputFiles,
    OutputRecord,
    PreparedCommand,
    Processes,
    RunningCommand,
    Take,
    encode_words,
)
from parley.workspace.remote import calls
from parley.workspace.remote.commands import EarlierCommand
from parley.workspace.remote.link import END_SECONDS, WorkspaceLink, WorkspaceUnavailable

T = TypeVar("T")
STDOUT, STDERR = 1, 2
REPORT_BYTES = 256 * 1024
"""After how much output the server is told that it was taken."""
PART_BYTES = 128 * 1024
QUICK_SECONDS = 5.0
"""For calls that the engine's loop waits for."""
MAX_SHOWN_CHARS = 2_000


class RemoteProcesses(Processes):
    """All commands of a session, on a workspace server."""

    def __init__(self, link: WorkspaceLink) -> None:
        super().__init__()
        self._link = link
        self._remote: set[RemoteCommand] = set()
        self.outputs = RemoteOutputFiles(link)

    async def start(self, command: PreparedCommand, take: Take, take_errors: Take | None = None) -> RunningCommand:
        if self._is_ended:
            raise ToolError("the command could not be started: the session is ending")
        if command.sandbox is not None:
            raise ToolError("the command could not be started: a remote workspace has no sandbox")
        record = getattr(take, "__self__", None)
        number = self._link.new_number()
        call = calls.start_command(
            command=number,
            argv=encode_words(command.argv),
            cwd=os.fsencode(command.cwd),
            environment={name: os.fsencode(value) for name, value in command.environment.items()},
            is_interactive=take_errors is not None,
            record=str(record.path) if isinstance(record, RemoteRecord) and take_errors is None else "",
            tool_use_id=command.tool_use_id,
        )
        running = RemoteCommand(self._link, number, (take, take_errors), self._remote.discard)
        try:
            await self._link.request(call)
        except BaseException:
            running.drop()
            raise
        self._remote.add(running)
        running.watch()
        return running

    @property
    def is_running_commands(self) -> bool:
        return any(command.feed is None for command in self._remote)

    async def is_folder(self, path: str) -> bool:
        [found] = await self._link.request(calls.find_facts([("is_folder", path, 0)]))
        return bool(found)

    async def find_kind(self, path: str) -> Literal["folder", "file"] | None:
        facts: list[calls.Fact] = [("is_folder", path, 0), ("exists", path, 0)]
        is_folder, exists = await self._link.request(calls.find_facts(facts))
        return "folder" if is_folder else "file" if exists else None

    def watch(self, report: Callable[[str], None]) -> None:
        loop = asyncio.get_running_loop()

        def tell(text: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop of the session has ended
                loop.call_soon_threadsafe(report, text)

        self._link.watch(tell)

    async def find_program(self, name: str, search_path: str) -> str | None:
        [found] = await self._link.request(calls.find_facts([("program", f"{name}\0{search_path}", 0)]))
        return str(found) if found else None

    def find_earlier(self, tool_use_id: str) -> str:
        try:
            return describe_earlier(self._link.call(calls.find_earlier_command(tool_use_id)))
        except ToolError as exc:
            return f"{exc}."

    def hurry(self) -> None:
        def end_now() -> None:
            self._is_ended = True
            self._link.post(calls.stop_all())

        asyncio.get_running_loop().call_later(HURRY_SECONDS, end_now)

    async def close(self) -> None:
        self._is_ended = True
        for command in list(self._remote):
            command.drop()
        try:
            async with asyncio.timeout(None if self._link.is_connected else END_SECONDS):
                await self._link.request(calls.stop_all())
        except (ToolError, OSError, TimeoutError):
            return  # the server ends them after its grace period

    def _abandon(self, command: RunningCommand) -> None:
        """The server ends what it does not stop; nothing has to be done here."""


class RemoteFeed(InputFeed):
    """The stdin of a command. Never blocks: what the server has not taken yet is buffered, up to a limit."""

    def __init__(self, link: WorkspaceLink, command: int) -> None:
        self._link = link
        self._command = command
        self._unsent_bytes = 0
        self._is_closed = False
        self._queue: list[bytes | None] = []
        """None is the end."""
        self._loop = asyncio.get_running_loop()
        self._sender: asyncio.Task[None] | None = None

    def put(self, data: bytes) -> None:
        if self._is_closed:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        if self._unsent_bytes + len(data) > MAX_INPUT_BYTES:
            raise OSError(errno.ENOBUFS, f"the command left more than {MAX_INPUT_BYTES >> 20} MB of input unread")
        self._unsent_bytes += len(data)
        for at in range(0, len(data), PART_BYTES):
            self._queue.append(data[at : at + PART_BYTES])
        self._start_sender()

    def finish(self) -> None:
        if not self._is_closed:
            self._queue.append(None)
            self._is_closed = True
            self._start_sender()

    def close(self) -> None:
        self._queue.clear()
        self.finish()

    def _start_sender(self) -> None:
        if self._sender is None or self._sender.done():
            self._sender = self._loop.create_task(self._send())

    async def _send(self) -> None:
        """One part after the other: the server answers when it has put a part into the pipe."""
        while self._queue:
            part = self._queue.pop(0)
            try:
                await self._link.request(calls.feed_command(self._command, part or b"", is_end=part is None))
            except (ToolError, OSError):  # the command no longer reads; its end is reported separately
                self._is_closed = True
                self._queue.clear()
            self._unsent_bytes -= len(part or b"")


class RemoteCommand(RunningCommand):
    """A command on the server."""

    def __init__(
        self,
        link: WorkspaceLink,
        number: int,
        take: tuple[Callable[[bytes], None], Callable[[bytes], None] | None],
        forget: Callable[[RemoteCommand], object],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended = self._loop.create_future()
        self.output_ended = self._loop.create_future()
        self.feed = None if take[1] is None else RemoteFeed(link, number)
        self._link = link
        self._number = number
        self._streams = {STDOUT: InputStream(take[0]), STDERR: InputStream(take[1])}
        self._forget_remote = forget
        self._watchers: list[asyncio.Task[None]] = []
        self._is_dropped = False
        link.add_sink(number, self)

    def watch(self) -> None:
        """Wait for the end, which comes after all output."""
        self._watchers.append(self._loop.create_task(self._wait_end()))
        if self.feed is not None:
            self._watchers.append(self._loop.create_task(self._wait_output()))

    async def _wait_end(self) -> None:
        try:
            ended = await self._link.request(calls.wait_for_command(self._number))
            for stream, total in zip((STDOUT, STDERR), ended.total_bytes, strict=True):
                await self._streams[stream].reach(total)
            self._settle(CommandEnd(ended.exit_code, os.fsdecode(ended.last_words), ended.error))
        except (ToolError, OSError) as exc:
            self._settle(CommandEnd(-signal.SIGKILL, error=str(exc)))
        self._release()

    async def _wait_output(self) -> None:
        try:
            total = await self._link.request(calls.wait_for_output(self._number))
            await self._streams[STDOUT].reach(total)
        except (ToolError, OSError):
            return
        self._end_output()

    # Called on the loop of the connection.

    def take_output(self, stream: int, offset: int, data: bytes) -> None:
        self._loop.call_soon_threadsafe(self._take_data, stream, offset, data)

    def resume(self) -> None:
        for stream in self._streams:
            self._loop.call_soon_threadsafe(self._report, stream)

    # Called on the engine's loop.

    def _take_data(self, stream: int, offset: int, data: bytes) -> None:
        if self._is_dropped or stream not in self._streams:
            return
        known = self._streams[stream]
        known.take_data(offset, data)
        if known.taken - known.reported >= REPORT_BYTES:
            self._report(stream)

    def _report(self, stream: int) -> None:
        if not self._is_dropped:
            known = self._streams[stream]
            known.reported = known.taken
            self._link.send_taken(self._number, stream, known.taken)

    def stop(self) -> None:
        if not self.ended.done():
            self._link.post(calls.stop_command(self._number))

    def drop(self) -> None:
        if self._is_dropped:
            return
        for watcher in self._watchers:
            watcher.cancel()
        if not self.ended.done():
            self._settle(CommandEnd(-signal.SIGKILL, error="the command was ended"))
        self._release()

    def _release(self) -> None:
        if self._is_dropped:
            return
        self._is_dropped = True
        self._link.remove_sink(self._number)
        self._link.post(calls.stop_command(self._number, forget=True))
        self._forget_remote(self)

    def _settle(self, end: CommandEnd) -> None:
        if not self.ended.done():
            self.ended.set_result(end)


class InputStream:
    """How much of a stream of a command was taken."""

    def __init__(self, take: Callable[[bytes], None] | None) -> None:
        self._take = take
        self.taken = 0
        self.reported = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def take_data(self, offset: int, data: bytes) -> None:
        """Take what is new of it: after a lost connection, some of it may arrive again."""
        new = data[max(0, self.taken - offset) :] if offset <= self.taken else b""
        if not new:
            return
        self.taken += len(new)
        if self._take is not None:
            self._take(new)
        for total, waiter in self._waiters:
            if self.taken >= total and not waiter.done():
                waiter.set_result(None)

    async def reach(self, total: int) -> None:
        """Wait until so much was taken."""
        if self.taken < total:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append((total, waiter))
            await waiter


class RemoteRecord(OutputRecord):
    """An output file on the server."""

    def __init__(self, link: WorkspaceLink, path: Path, *, again: bool = False) -> None:
        self._link = link
        self.path = path
        self.total_bytes = 0
        self.problem = ""
        self._is_closed = False
        call_quickly(link, calls.open_record(str(path), again))

    def take(self, data: bytes) -> None:
        for at in range(0, len(data), PART_BYTES):
            part = data[at : at + PART_BYTES]
            self._link.post(calls.append_record(str(self.path), self.total_bytes, part), self._set_problem)
            self.total_bytes += len(part)

    def close(self) -> None:
        """Wait until all of it is written: the one who gets the path may read the file at once."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._set_problem(call_quickly(self._link, calls.close_record(str(self.path))))
        except OSError as exc:
            self._set_problem(f"the rest could not be saved: {exc.strerror}")

    def _set_problem(self, result: object) -> None:
        if result and not self.problem:
            self.problem = str(result)


class RemoteOutputFiles(OutputFiles):
    """The output files of a session, on the server."""

    def __init__(self, link: WorkspaceLink) -> None:
        self._link = link

    def open(self, path: Path, *, again: bool = False) -> OutputRecord:
        return RemoteRecord(self._link, path, again=again)

    def save(self, path: Path, data: bytes) -> None:
        call_quickly(self._link, calls.save_result(str(path), data))

    def tail(self, path: Path, limit_bytes: int) -> tuple[int, bytes]:
        return call_quickly(self._link, calls.read_record(str(path), limit_bytes))

    def remove(self, path: Path) -> None:
        self._link.post(calls.close_record(str(path), remove=True))


def call_quickly(link: WorkspaceLink, call: calls.Call[T]) -> T:
    """Call from the engine's loop, which must not wait for a workspace that is away. Raises OSError."""
    if not link.is_connected:
        raise OSError(errno.ENOTCONN, f"{link.name} is not connected")
    try:
        return link.call(call, QUICK_SECONDS)
    except WorkspaceUnavailable as exc:
        raise OSError(errno.ETIMEDOUT, str(exc)) from None
    except ToolError as exc:
        raise OSError(errno.EIO, str(exc)) from None


def describe_earlier(found: EarlierCommand | None) -> str:
    """A sentence or two; empty if nothing is known."""
    if found is None:
        return ""
    if found.exit_code is None:
        how = "The workspace ended the command, because its engine was gone."
    else:
        how = f"The command itself ended with exit code {found.exit_code}."
    shown = found.last_output.decode(errors="replace").replace("\0", "\ufffd")[-MAX_SHOWN_CHARS:].strip()
    return f"{how} It had written {found.total_bytes} bytes." + (f" The end of its output:\n{shown}" if shown else "")
