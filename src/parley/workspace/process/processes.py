"""Run commands on this machine under a supervisor process: the engine's side.

    command = await processes.start(PreparedCommand(...), record.take)  # it runs
    command.stop()                                                      # SIGTERM, then SIGKILL
    end = await command.ended

    done = await processes.run(PreparedCommand(...), 60, CommandOutput(...))    # all of that in one call

A command has its own process session, exactly the given environment, and no stdin unless it is interactive. It ends
with its main process, even if children keep its output open. Their later output is read and discarded, so that they do
not block. They run until they end or the session ends.

The start of the output is kept in memory, all of it (up to a limit) in a file. `CommandOutput` is for a foreground
command; the file is created when the memory limit is reached. `OutputRecord` is the file; a background command uses it
alone, so that its output can be read while it runs. If the disk is full, the rest of the file is lost and the command
continues.

See also: an overview of all processes (supervisor.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.workspace import private_files

if TYPE_CHECKING:
    from parley.workspace.sandbox.launcher import SandboxLauncher, SandboxRun

BELOW = 4
"""How many folders above an output file are ours, in the configuration folder and in the temporary folder."""
FILE_CAP_BYTES = 256 * 1024 * 1024
"""The size limit of an output file. Further output is counted and dropped."""
ROOT = Path(__file__).parents[3]
BOOT = (
    "import sys; sys.path.append(sys.argv[1]); from parley.workspace.process.supervisor import main; "
    "main(int(sys.argv[2]), may_adopt=sys.argv[3] == 'adopt')"
)
"""Our modules come last on the path, so that they cannot shadow the standard library."""
LOADER_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""The only variables that the supervisor gets. Some interpreters do not start without them."""
END, HURRY = b"e", b"h"
"""The same as in supervisor.py."""
START_SECONDS = 10.0
END_SECONDS = 5.0
"""How long to wait for the end of a stopped command. The supervisor kills it within two seconds."""
IDLE_SECONDS = 20.0
"""How long a sandbox without a command stays. It leaves empty folders in the working directory until it ends."""
HURRY_SECONDS = 0.5
"""The time from `hurry` until all commands are killed."""
KILL_SECONDS = 2.0
"""How long an interrupt waits for the end of a command. The command is killed in any case."""
READ_BYTES = 1 << 16
PIPE_BYTES = 1 << 20
"""The capacity of a pipe: the most output that can remain in it when a command ends."""
LEFTOVER_PAUSE_SECONDS = 0.05
"""The pause between reads of leftover children's output, which is discarded."""
MAX_INPUT_BYTES = 64 << 20
LENGTH = struct.Struct("!Q")
LOST = "the command and its supervising process were killed"


class OutputRecord:
    """An output file, private to the user. `again` appends to an existing one. Raises OSError."""

    def __init__(self, path: Path, *, again: bool = False) -> None:
        self.path = path
        self.total_bytes = 0
        self.problem = ""
        """Why the file is incomplete; "" if it is complete."""
        flags = os.O_WRONLY | os.O_CREAT | (0 if again else os.O_EXCL)
        self._file: int | None = private_files.open_file(path, flags, below=BELOW)
        self._start = os.fstat(self._file).st_size

    def take(self, data: bytes) -> None:
        self.write(self.total_bytes, data)

    def write(self, offset: int, data: bytes) -> None:
        """Write at a position after what was there at first. A full disk loses the rest, not the command."""
        self.total_bytes = max(self.total_bytes, offset + len(data))
        left, at = memoryview(data)[: max(0, FILE_CAP_BYTES - offset)], self._start + offset
        try:
            while left and self._file is not None and not self.problem:
                count = os.pwrite(self._file, left, at)
                left, at = left[count:], at + count
        except OSError as exc:
            self.problem = f"the rest could not be saved: {exc.strerror}"
        if self.total_bytes > FILE_CAP_BYTES:
            self.problem = f"the output after {FILE_CAP_BYTES >> 20} MB was dropped"

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            try:
                os.close(file)
            except OSError as exc:  # delayed writes report their errors here
                self.problem = self.problem or f"the rest could not be saved: {exc.strerror}"


class OutputFiles:
    """The output files of a session. Each method raises OSError."""

    def open(self, path: Path, *, again: bool = False) -> OutputRecord:
        """Create an output file, or append to it `again`."""
        return OutputRecord(path, again=again)

    def save(self, path: Path, data: bytes) -> None:
        private_files.write(path, data, below=BELOW)

    def tail(self, path: Path, limit_bytes: int) -> tuple[int, bytes]:
        """The size of a file, and its end."""
        with open(private_files.open_file(path, os.O_RDONLY, below=BELOW), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - limit_bytes))
            return size, file.read(limit_bytes)

    def remove(self, path: Path) -> None:
        private_files.remove(path, below=BELOW)


class ResultFile(Struct, frozen=True):
    """A file for output that is too long for a line. It does not exist yet."""

    path: Path
    files: OutputFiles

    def write(self, data: bytes) -> str | None:
        """Write it; returns the error if that fails."""
        try:
            self.files.save(self.path, data)
        except OSError as exc:
            return exc.strerror or str(exc)
        return None


class CommandOutput:
    """The start of a command's output, and the file with all of it if it exceeds `keep_bytes`."""

    def __init__(
        self,
        keep_bytes: int,
        spill_to: Callable[[], Path],
        watch: Take | None = None,
        files: OutputFiles | None = None,
    ) -> None:
        """`watch`: gets all of the output, as it arrives."""
        self.kept = bytearray()
        self.total_bytes = 0
        self.problem = ""
        self._keep_bytes = keep_bytes
        self._spill_to = spill_to
        self._watch = watch
        self.files = files or OutputFiles()
        self._record: OutputRecord | None = None

    @property
    def path(self) -> Path | None:
        return self._record.path if self._record is not None else None

    def take(self, data: bytes) -> None:
        if self._watch is not None:
            self._watch(data)
        self.total_bytes += len(data)
        room = self._keep_bytes - len(self.kept)
        if self._record is None and len(data) > room and not self.problem:
            self._spill()
        if self._record is not None:
            self._record.take(data)
            self.problem = self._record.problem
        if room > 0:
            self.kept += data[:room]

    def close(self) -> None:
        if self._record is not None:
            self._record.close()
            self.problem = self._record.problem

    def _spill(self) -> None:
        try:
            self._record = self.files.open(self._spill_to())
        except OSError as exc:
            self.problem = f"it could not be saved: {exc.strerror}"
            return
        self._record.take(bytes(self.kept))


def private_folder(parent: Path, *names: str) -> Path:
    """Create private folders in a shared folder such as /tmp. Raises ToolError if another user owns one of them."""
    folder = parent
    for name in names:
        folder = folder / name
        try:
            with private_files.open_folder(folder, below=1, make=True, to_list=True) as (opened, _):
                found = os.fstat(opened)
                if found.st_uid != os.geteuid():
                    raise ToolError(f"{folder} belongs to another user")
                if found.st_mode & 0o077:
                    os.fchmod(opened, 0o700)
        except private_files.UnsafeFile as exc:
            raise ToolError(exc.strerror) from None
        except OSError as exc:
            raise ToolError(f"cannot create the folder {folder}: {exc.strerror}") from None
    return folder


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


class CommandEnd(Struct, frozen=True):
    """How a command ended."""

    exit_code: int
    last_words: str = ""
    error: str = ""
    """Why the exit code is not known."""


class Finished(Struct, frozen=True, kw_only=True):
    """The outcome of a command that has ended."""

    exit_code: int
    """Negative for a signal."""
    output: bytes
    """The start of the output, up to the limit."""
    total_bytes: int
    spilled_to: str | None
    problem: str = ""
    """Why the file is incomplete; "" if it is complete."""
    last_words: str
    """What the command wrote to the descriptor `child.LAST_WORDS`."""
    timed_out: bool


Take = Callable[[bytes], None]
"""Gets the output of a command as it is read."""


class PreparedCommand(Struct, frozen=True, kw_only=True):
    """A command that can be started."""

    argv: list[str]
    cwd: str
    environment: Mapping[str, str]
    sandbox: SandboxLauncher | None = None
    """Where it runs; None for outside of a sandbox."""
    tool_use_id: str = ""
    """The call that it runs for (`find_earlier`)."""


class CommandStarter(Protocol):
    """Starts commands with a stdin: `Processes`, or one that confines them first."""

    async def find_program(self, name: str, search_path: str) -> str | None:
        """The path of a program that a command would run by its name."""

    async def start(self, command: PreparedCommand, take: Take, take_errors: Take | None = None) -> RunningCommand:
        """Start a command. Raises ToolError."""


class Processes:
    """All commands of a session."""

    def __init__(self, *, may_adopt: bool = True) -> None:
        self._supervisors: dict[SandboxLauncher | None, SupervisorProcess] = {}
        """One for each sandbox; None is the key of the one for commands that are not confined."""
        self._abandoned: list[SupervisorProcess] = []
        self._may_adopt = may_adopt
        self._commands: dict[RunningCommand, SupervisorProcess] = {}
        self._start_lock = asyncio.Lock()
        self._is_ended = False
        self.closers: list[Callable[[], Awaitable[None]]] = []
        """Called when all commands are gone."""
        self.hides_engine = False
        """Whether commands are kept from tracing this process or reading its memory. Only for our own executable."""
        self.outputs = OutputFiles()

    async def is_folder(self, path: str) -> bool:
        """Whether a command can start in a folder."""
        return os.path.isdir(path)  # noqa: ASYNC240  # as quick as the command that follows

    async def find_kind(self, path: str) -> Literal["folder", "file"] | None:
        """What a path is; None if nothing is there."""
        if await asyncio.to_thread(os.path.isdir, path):
            return "folder"
        return "file" if await asyncio.to_thread(os.path.lexists, path) else None

    async def find_program(self, name: str, search_path: str) -> str | None:
        """The path of a program that a command would run by its name."""
        import shutil

        return shutil.which(name, path=search_path)

    def watch(self, report: Callable[[str], None]) -> None:
        """Report to the client when the machine that runs the commands is lost and when it is back."""

    def find_earlier(self, tool_use_id: str) -> str:
        """What is known of a command that an earlier engine started for a call, in a sentence; empty if nothing."""
        return ""

    async def run(self, command: PreparedCommand, timeout_seconds: float, output: CommandOutput) -> Finished:
        """Run a command to its end. Cancelling kills it. Raises ToolError if it cannot be started."""
        try:
            end, timed_out = await self.wait(await self.start(command, output.take), timeout_seconds)
        finally:
            output.close()
        return self.finished(end, timed_out, output)

    @staticmethod
    def finished(end: CommandEnd, timed_out: bool, output: CommandOutput) -> Finished:
        """Combine the end of a command and its output. Raises ToolError if it was not run."""
        if end.error:
            raise ToolError(end.error)
        return Finished(
            exit_code=end.exit_code,
            output=bytes(output.kept),
            total_bytes=output.total_bytes,
            spilled_to=str(output.path) if output.path else None,
            problem=output.problem,
            last_words=end.last_words,
            timed_out=timed_out,
        )

    async def start(self, command: PreparedCommand, take: Take, take_errors: Take | None = None) -> RunningCommand:
        """Start a command whose output is passed to `take`. Raises ToolError if it cannot be started.

        With `take_errors`, stderr is separate and the command gets a stdin: write to its `feed`.
        """
        request = encode_request(command.argv, command.cwd, command.environment)
        if self._is_ended:
            raise ToolError("the command could not be started: the session is ending")
        try:
            running = await self._hand_over(command, take, take_errors)
        except OSError as exc:
            raise ToolError(f"the command could not be started: {exc.strerror}") from None
        supervisor = self._commands[running]
        try:
            async with asyncio.timeout(START_SECONDS):
                error = await running.start(request)
        except TimeoutError:
            self._abandon(running)
            error = f"the supervisor process did not answer within {START_SECONDS:.0f} s"
        except BaseException:
            running.drop()
            raise
        if error:
            running.drop()
            if command.sandbox is not None and supervisor.is_gone and supervisor.problem:
                error = f"the sandbox did not start: {supervisor.problem}"
            raise ToolError(f"the command could not be started: {error}")
        return running

    async def wait(self, command: RunningCommand, timeout_seconds: float) -> tuple[CommandEnd, bool]:
        """Wait for the end. Returns it, and whether the command timed out. Cancelling kills it and waits for that."""
        try:
            done, _ = await asyncio.wait({command.ended}, timeout=timeout_seconds)
            if done:
                return command.ended.result(), False
            command.stop()
            done, _ = await asyncio.wait({command.ended}, timeout=END_SECONDS)
        except asyncio.CancelledError:
            await self.kill(command)
            raise
        if not done:
            self._abandon(command)
            command.drop()
            return CommandEnd(-signal.SIGKILL), True
        return command.ended.result(), True

    async def kill(self, command: RunningCommand) -> None:
        """Stop a command and wait briefly for its end, so that the next command does not run concurrently with it."""
        command.stop()
        try:
            await asyncio.wait({command.ended}, timeout=KILL_SECONDS)
        finally:
            command.drop()

    @property
    def is_running_commands(self) -> bool:
        """Whether a command, or a process that it left, runs. Hooks and servers, which have a stdin, do not count."""
        return any(command.feed is None and not command.is_gone for command in self._commands)

    def hurry(self) -> None:
        """The engine exits soon: kill all commands after a moment, and refuse to start others."""
        asyncio.get_running_loop().call_later(HURRY_SECONDS, self._end_now)

    def _end_now(self) -> None:
        from parley.workspace.process.tree import kill_beside

        self._is_ended = True
        supervisors = (*self._abandoned, *self._supervisors.values())
        for supervisor in supervisors:
            supervisor.hurry()
        # Searches and API key helpers run without a supervisor.
        kill_beside({pid for supervisor in supervisors for pid in supervisor.pids})

    async def close(self) -> None:
        """End all commands. When this returns, they are gone."""
        for command in list(self._commands):
            command.drop()
        self._abandoned += self._supervisors.values()
        self._supervisors.clear()
        while self._abandoned:
            await self._abandoned[0].end()
            del self._abandoned[0]
        for command in list(self._commands):
            command.release()
        while self.closers:
            await self.closers.pop()()

    async def _hand_over(self, command: PreparedCommand, take: Take, take_errors: Take | None) -> RunningCommand:
        """Pass the descriptors of a new command to the supervisor. Raises OSError."""
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as remote:
            line, far_end = socket.socketpair()
            ours.callback(line.close)
            remote.callback(far_end.close)
            output, output_writer = new_pipe(ours, remote)
            passed = [far_end.fileno(), output_writer]
            more: dict[str, Any] = {}
            if take_errors is not None:
                input_reader, input_writer = new_pipe(remote, ours)
                errors, errors_writer = new_pipe(ours, remote)
                passed += [input_reader, errors_writer]
                more = {"feed": input_writer, "errors": (errors, take_errors)}
            async with self._start_lock:
                supervisor = await self._pass(passed, command.environment, command.sandbox)
            ours.pop_all()
        running = RunningCommand(line, (output, take), self._forget, **more)
        self._commands[running] = supervisor
        return running

    async def _pass(
        self, descriptors: list[int], environment: Mapping[str, str], sandbox: SandboxLauncher | None
    ) -> SupervisorProcess:
        """Pass descriptors to the supervisor, a new one if the last is gone, and return it. Raises OSError."""
        supervisor = self._supervisors.get(sandbox)
        if supervisor is None or supervisor.is_gone:
            # What its processes change while they end must not be taken for the state to restore.
            for former in [each for each in self._abandoned if sandbox is not None and each.sandbox is sandbox]:
                await former.end()
            supervisor = self._start_supervisor(environment, sandbox)
        elif sandbox is not None and supervisor not in self._commands.values():
            sandbox.before_command()
        try:
            await supervisor.take(descriptors)
        except OSError as exc:
            if exc.errno not in (errno.EPIPE, errno.ECONNRESET):
                raise
            supervisor = self._start_supervisor(environment, sandbox)
            await supervisor.take(descriptors)
        return supervisor

    def _start_supervisor(self, environment: Mapping[str, str], sandbox: SandboxLauncher | None) -> SupervisorProcess:
        self._abandoned = [supervisor for supervisor in self._abandoned if not supervisor.is_gone]
        if sandbox in self._supervisors:
            self._abandoned.append(self._supervisors.pop(sandbox))
        if self.hides_engine:
            from parley.workspace.process.tree import hide_memory

            hide_memory()
        supervisor = self._supervisors[sandbox] = SupervisorProcess(environment, self._may_adopt, sandbox)
        return supervisor

    def _forget(self, command: RunningCommand) -> None:
        """The child supervisor of a command is gone. A supervisor in a sandbox does not stay long without any."""
        supervisor = self._commands.get(command)
        if supervisor is not None and supervisor.sandbox is not None and not command.is_gone:
            # The command has killed it, and may go on: the sandbox ends with everything in it, and cleans up then.
            self._abandon(command)
        self._commands.pop(command, None)
        if supervisor is None or supervisor.sandbox is None:
            return
        if command.is_gone and supervisor not in self._commands.values():
            supervisor.sandbox.after_last_process()
        if not supervisor.is_gone:
            asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end_idle, supervisor, supervisor.taken)

    def _end_idle(self, supervisor: SupervisorProcess, taken: int) -> None:
        is_idle = supervisor not in self._commands.values() and supervisor.taken == taken
        if is_idle and self._supervisors.get(supervisor.sandbox) is supervisor:
            del self._supervisors[supervisor.sandbox]
            self._abandoned.append(supervisor)
            supervisor.dismiss()

    def _abandon(self, command: RunningCommand) -> None:
        """The supervisor does not respond. It ends what it started; the next command gets a new supervisor."""
        supervisor = self._commands.get(command)
        if supervisor is not None and supervisor is self._supervisors.get(supervisor.sandbox):
            supervisor.dismiss()
            self._abandoned.append(supervisor)
            del self._supervisors[supervisor.sandbox]


class RunningCommand:
    """A command that was passed to the supervisor."""

    def __init__(
        self,
        line: socket.socket,
        output: tuple[int, Take],
        forget: Callable[[RunningCommand], object],
        *,
        feed: int | None = None,
        errors: tuple[int, Take] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[CommandEnd] = loop.create_future()
        self.feed = None if feed is None else InputFeed(feed)
        """The command's stdin; None if it has none."""
        self._started: asyncio.Future[str] = loop.create_future()
        """The error of the start; "" if it succeeded."""
        self._line = line
        self.output_ended: asyncio.Future[None] = loop.create_future()
        """Done when the output is closed, which may be before the command has ended."""
        self._pipes = [OutputPipe(*output, self._end_output), *([] if errors is None else [OutputPipe(*errors)])]
        self._buffer = bytearray()
        self._forget = forget
        self.is_gone = False
        """Whether no process of the command is left."""
        line.setblocking(False)
        loop.add_reader(line, self._on_readable)

    async def start(self, request: bytes) -> str:
        """Send the request. Returns the error; "" if the command runs."""
        with contextlib.suppress(OSError):  # the other end is closed and has reported the reason
            await asyncio.get_running_loop().sock_sendall(self._line, request)
        return await self._started

    def stop(self) -> None:
        """Terminate the command and its descendants. `ended` is set when they are gone."""
        if self._line.fileno() >= 0:
            self._line.shutdown(socket.SHUT_WR)

    def pause_output(self, is_paused: bool) -> None:
        """Stop reading the output, so that a command that writes more has to wait; or read on."""
        for pipe in self._pipes:
            pipe.pause(is_paused)

    def drop(self) -> None:
        """Terminate the command without waiting. It is forgotten when its processes are gone."""
        with contextlib.suppress(OSError):  # the other end is closed
            self.stop()
        for pipe in self._pipes:
            pipe.close()
        if self.feed is not None:
            self.feed.close()
        self._settle(CommandEnd(-signal.SIGKILL, error=LOST))

    def release(self) -> None:
        """Close the line. Processes of the command end without being noticed."""
        if self._line.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._line)
            self._line.close()
        self._forget(self)

    def _on_readable(self) -> None:
        try:
            data = self._line.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            # The child supervisor is gone, and with it every process that could still write.
            self._drain_pipes()
            self.drop()
            self.release()
            return
        *records, rest = (self._buffer + data).split(b"\0")
        self._buffer = bytearray(rest)
        for record in records:
            self._take(os.fsdecode(bytes(record)))

    def _take(self, record: str) -> None:
        word, _, rest = record.partition(" ")
        if word == "exit":
            code, _, last_words = rest.partition(" ")
            self._drain_pipes()
            self._settle(CommandEnd(int(code), last_words))
        elif word == "gone":
            self.is_gone = True
        elif not self._started.done():
            self._started.set_result(rest)

    def _end_output(self) -> None:
        if not self.output_ended.done():
            self.output_ended.set_result(None)

    def _drain_pipes(self) -> None:
        for pipe in self._pipes:
            pipe.drain()

    def _settle(self, end: CommandEnd) -> None:
        if not self._started.done():
            self._started.set_result(end.error)
        if not self.ended.done():
            self.ended.set_result(end)


class OutputPipe:
    """The reading end of a command's output. It is read to its end, even after the command has ended."""

    def __init__(self, descriptor: int, take: Take, ended: Callable[[], None] = lambda: None) -> None:
        self._descriptor = descriptor
        self._take: Take | None = take
        self._ended = ended
        os.set_blocking(descriptor, False)
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def pause(self, is_paused: bool) -> None:
        """Stop reading, or read on."""
        if self._descriptor >= 0 and self._take is not None:
            loop = asyncio.get_running_loop()
            if is_paused:
                loop.remove_reader(self._descriptor)
            else:
                loop.add_reader(self._descriptor, self._read)

    def drain(self) -> None:
        """The command has ended: take the remaining output and discard what its children write from now on."""
        taken = 0
        while self._take is not None and taken < PIPE_BYTES and (count := self._read()):
            taken += count
        if self._descriptor >= 0 and self._take is not None:
            asyncio.get_running_loop().add_reader(self._descriptor, self._read)  # it may have been paused
        self._take = None

    def close(self) -> None:
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> int:
        """Read once. Returns the number of bytes."""
        if self._descriptor < 0:
            return 0
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            self.close()
            self._ended()
        elif self._take is not None:
            self._take(data)
        else:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._descriptor)
            loop.call_later(LEFTOVER_PAUSE_SECONDS, self._resume)
        return len(data)

    def _resume(self) -> None:
        if self._descriptor >= 0:
            asyncio.get_running_loop().add_reader(self._descriptor, self._read)


class InputFeed:
    """The writing end of a command's input. Never blocks: data that exceeds the pipe is buffered, up to a limit."""

    def __init__(self, descriptor: int, max_bytes: int = MAX_INPUT_BYTES) -> None:
        self._descriptor = descriptor
        self._max_bytes = max_bytes
        self._waiting = bytearray()
        self._closes_when_empty = False
        self._drained = asyncio.Event()
        os.set_blocking(descriptor, False)

    def put(self, data: bytes) -> None:
        """Write or buffer data. Raises OSError if the command no longer reads, or not fast enough."""
        if self._descriptor < 0:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        if len(self._waiting) + len(data) > self._max_bytes:
            raise OSError(errno.ENOBUFS, f"the command left more than {self._max_bytes >> 20} MB of input unread")
        was_empty = not self._waiting
        self._waiting += data
        if was_empty:
            self._write()
            if self._waiting:
                asyncio.get_running_loop().add_writer(self._descriptor, self._on_writable)

    async def wait_below(self, max_bytes: int) -> None:
        """Wait until at most so much is buffered, or the command no longer reads."""
        while self._descriptor >= 0 and len(self._waiting) > max_bytes:
            self._drained.clear()
            await self._drained.wait()

    def finish(self) -> None:
        """Close the input after the buffered data."""
        self._closes_when_empty = True
        if not self._waiting:
            self.close()

    def close(self) -> None:
        """Close the input and discard the buffered data."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
            self._drained.set()

    def _write(self) -> None:
        with contextlib.suppress(BlockingIOError):
            del self._waiting[: os.write(self._descriptor, self._waiting)]
            self._drained.set()

    def _on_writable(self) -> None:
        try:
            self._write()
        except OSError:  # the command no longer reads; its end is reported separately
            self.close()
            return
        if not self._waiting and self._closes_when_empty:
            self.close()
        elif not self._waiting:
            asyncio.get_running_loop().remove_writer(self._descriptor)


class SupervisorProcess:
    """A supervisor process that this engine started, and its control socket. Raises OSError if it cannot be started."""

    def __init__(self, environment: Mapping[str, str], may_adopt: bool, sandbox: SandboxLauncher | None = None) -> None:
        self.sandbox = sandbox
        self.is_gone = False
        self.taken = 0
        """How many commands it was given."""
        self.problem = ""
        """Why a supervisor in a sandbox has ended."""
        self._control, remote = socket.socketpair()
        self._control.setblocking(False)
        variables = {name: environment[name] for name in LOADER_VARIABLES if name in environment}
        try:
            if sandbox is not None:
                self._run: SandboxRun | None = sandbox.start(remote, variables)
                self._process = self._run.process
            else:
                self._run = None
                mode = "adopt" if may_adopt else "group"
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", BOOT, str(ROOT), str(remote.fileno()), mode],
                    pass_fds=[remote.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=variables,
                    start_new_session=True,
                )
        except BaseException:
            self._control.close()
            raise
        finally:
            remote.close()
        asyncio.get_running_loop().add_reader(self._control, self._lost)

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that end by themselves."""
        return (self._process.pid, *(() if self._run is None else self._run.helpers))

    async def take(self, descriptors: list[int]) -> None:
        """Send descriptors. Raises OSError."""
        while True:
            try:
                socket.send_fds(self._control, [b"!"], descriptors)
                self.taken += 1
                return
            except BlockingIOError:
                await writable(self._control)

    def hurry(self) -> None:
        """Tell it to end all commands with the short grace period."""
        if not self.is_gone:
            self._send(HURRY)

    def dismiss(self) -> None:
        """Tell it to end all commands and exit."""
        if not self._send(END):  # the process is stopped and its socket buffer is full
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)
        self._process.send_signal(signal.SIGCONT)

    async def end(self) -> None:
        """Dismiss it and wait for its exit."""
        if self.is_gone:
            return
        self.dismiss()
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._control)
        try:
            async with asyncio.timeout(END_SECONDS):
                await loop.sock_recv(self._control, 1)
        except TimeoutError:
            from parley.workspace.process.tree import kill_with_descendants

            await asyncio.to_thread(kill_with_descendants, self._process, END_SECONDS)
        finally:
            self._forget()

    def _send(self, word: bytes) -> bool:
        try:
            return self._control.send(word) > 0
        except OSError:
            return False

    def _lost(self) -> None:
        """The supervisor never writes, so a readable socket means that it has exited."""
        asyncio.get_running_loop().remove_reader(self._control)
        self._forget()

    def _forget(self) -> None:
        if not self.is_gone:
            self.is_gone = True
            self._control.close()
            self._process.wait()
            if self._run is not None:
                self.problem = self._run.finish()


def new_pipe(readers: contextlib.ExitStack, writers: contextlib.ExitStack) -> tuple[int, int]:
    """Create a pipe. Its ends are closed with the given exit stacks."""
    reading, writing = os.pipe()
    readers.callback(os.close, reading)
    writers.callback(os.close, writing)
    return reading, writing


async def writable(end: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(end, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(end)


def encode_words(argv: list[str]) -> list[bytes]:
    """Raises ToolError for invalid text."""
    try:
        return [word.encode("utf-8", "surrogateescape") for word in argv]
    except UnicodeEncodeError:
        raise ToolError("the command contains invalid Unicode (a lone surrogate)") from None


def encode_request(argv: list[str], cwd: str, environment: Mapping[str, str]) -> bytes:
    """Encode a request for the child supervisor. Raises ToolError for invalid text."""
    words = encode_words(argv)
    variables = [os.fsencode(f"{name}={value}") for name, value in environment.items()]
    parts = [os.fsencode(cwd), b"%d" % len(words), *words, *variables]
    if any(b"\0" in part for part in parts):
        raise ToolError("the command contains a NUL character, which a command line cannot contain")
    payload = b"".join(part + b"\0" for part in parts)
    return LENGTH.pack(len(payload)) + payload
