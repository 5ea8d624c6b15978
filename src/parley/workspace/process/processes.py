"""Run commands on this machine under a supervisor process (supervisor.py).

    command = await processes.start(argv, ..., take=record.take)        # it runs
    command.stop()                                                      # SIGTERM, then SIGKILL
    end = await command.ended

    done = await processes.run(argv, ..., output=CommandOutput(...))    # all of that in one call

A command has its own process session, exactly the given environment, and no stdin unless it is interactive. It ends
with its main process, even if children keep its output open. Their later output is read and discarded, so that they do
not block. They run until they end or the session ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.workspace.process.command import CommandEnd, RunningCommand, encode_request
from parley.workspace.process.output import CommandOutput

if TYPE_CHECKING:
    from subprocess import Popen

__all__ = ["CommandEnd", "Finished", "Processes", "RunningCommand"]

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
HURRY_SECONDS = 0.5
"""The time from `hurry` until all commands are killed."""
KILL_SECONDS = 2.0
"""How long an interrupt waits for the end of a command. The command is killed in any case."""


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


class Processes:
    """All commands of a session."""

    def __init__(self, *, may_adopt: bool = True) -> None:
        self._supervisor: SupervisorProcess | None = None
        self._abandoned: list[SupervisorProcess] = []
        self._may_adopt = may_adopt
        self._commands: dict[RunningCommand, SupervisorProcess] = {}
        self._start_lock = asyncio.Lock()
        self._is_ended = False
        self.hides_engine = False
        """Whether commands are kept from tracing this process or reading its memory. Only for our own executable."""

    async def run(
        self,
        argv: list[str],
        *,
        cwd: str,
        environment: Mapping[str, str],
        timeout_seconds: float,
        output: CommandOutput,
    ) -> Finished:
        """Run a command to its end. Cancelling kills it. Raises ToolError if it cannot be started."""
        try:
            command = await self.start(argv, cwd=cwd, environment=environment, take=output.take)
            end, timed_out = await self.wait(command, timeout_seconds)
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

    async def start(
        self,
        argv: list[str],
        *,
        cwd: str,
        environment: Mapping[str, str],
        take: Callable[[bytes], None],
        take_errors: Callable[[bytes], None] | None = None,
    ) -> RunningCommand:
        """Start a command whose output is passed to `take`. Raises ToolError if it cannot be started.

        With `take_errors`, stderr is separate and the command gets a stdin: write to its `feed`.
        """
        request = encode_request(argv, cwd, environment)
        if self._is_ended:
            raise ToolError("the command could not be started: the session is ending")
        try:
            command = await self._hand_over(environment, take, take_errors)
        except OSError as exc:
            raise ToolError(f"the command could not be started: {exc.strerror}") from None
        try:
            async with asyncio.timeout(START_SECONDS):
                error = await command.start(request)
        except TimeoutError:
            self._abandon(command)
            error = f"the supervisor process did not answer within {START_SECONDS:.0f} s"
        except BaseException:
            command.drop()
            raise
        if error:
            command.drop()
            raise ToolError(f"the command could not be started: {error}")
        return command

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

    def hurry(self) -> None:
        """The engine exits soon: kill all commands after a moment, and refuse to start others."""
        asyncio.get_running_loop().call_later(HURRY_SECONDS, self._end_now)

    def _end_now(self) -> None:
        from parley.workspace.process.tree import kill_beside

        self._is_ended = True
        supervisors = (*self._abandoned, *([] if self._supervisor is None else [self._supervisor]))
        for supervisor in supervisors:
            supervisor.hurry()
        kill_beside(
            {supervisor.pid for supervisor in supervisors}
        )  # searches and API key helpers run without a supervisor

    async def close(self) -> None:
        """End all commands. When this returns, they are gone."""
        for command in list(self._commands):
            command.drop()
        if self._supervisor is not None:
            self._abandoned.append(self._supervisor)
            self._supervisor = None
        while self._abandoned:
            await self._abandoned[0].end()
            del self._abandoned[0]

    async def _hand_over(
        self, environment: Mapping[str, str], take: Callable[[bytes], None], take_errors: Callable[[bytes], None] | None
    ) -> RunningCommand:
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
                supervisor = await self._pass(passed, environment)
            ours.pop_all()
        command = RunningCommand(line, (output, take), lambda done: self._commands.pop(done, None), **more)
        self._commands[command] = supervisor
        return command

    async def _pass(self, descriptors: list[int], environment: Mapping[str, str]) -> SupervisorProcess:
        """Pass descriptors to the supervisor, a new one if the last is gone, and return it. Raises OSError."""
        supervisor = self._supervisor
        if supervisor is None or supervisor.is_gone:
            supervisor = self._start_supervisor(environment)
        try:
            await supervisor.take(descriptors)
        except OSError as exc:
            if exc.errno not in (errno.EPIPE, errno.ECONNRESET):
                raise
            supervisor = self._start_supervisor(environment)
            await supervisor.take(descriptors)
        return supervisor

    def _start_supervisor(self, environment: Mapping[str, str]) -> SupervisorProcess:
        if self._supervisor is not None:
            self._abandoned.append(self._supervisor)
            self._supervisor = None
        if self.hides_engine:
            from parley.workspace.process.tree import hide_memory

            hide_memory()
        self._supervisor = SupervisorProcess(environment, self._may_adopt)
        return self._supervisor

    def _abandon(self, command: RunningCommand) -> None:
        """The supervisor does not respond. It ends what it started; the next command gets a new supervisor."""
        supervisor = self._commands.get(command)
        if supervisor is not None and supervisor is self._supervisor:
            supervisor.dismiss()
            self._abandoned.append(supervisor)
            self._supervisor = None


class SupervisorProcess:
    """A supervisor process that this engine started, and its control socket. Raises OSError if it cannot be started."""

    def __init__(self, environment: Mapping[str, str], may_adopt: bool) -> None:
        import subprocess

        self._control, remote = socket.socketpair()
        self._control.setblocking(False)
        mode = "adopt" if may_adopt else "group"
        try:
            self._process: Popen[bytes] = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", BOOT, str(ROOT), str(remote.fileno()), mode],
                pass_fds=[remote.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={name: environment[name] for name in LOADER_VARIABLES if name in environment},
                start_new_session=True,
            )
        except BaseException:
            self._control.close()
            raise
        finally:
            remote.close()
        self.is_gone = False
        self.pid = self._process.pid
        asyncio.get_running_loop().add_reader(self._control, self._lost)

    async def take(self, descriptors: list[int]) -> None:
        """Send descriptors. Raises OSError."""
        while True:
            try:
                socket.send_fds(self._control, [b"!"], descriptors)
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
            self._process.kill()
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
        self.is_gone = True
        self._control.close()
        self._process.wait()


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
