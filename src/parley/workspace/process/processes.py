"""Commands on this machine, run through the guard (supervisor.py).

    command = await processes.start(argv, ..., take=record.take)    # it runs
    command.stop()                                                  # SIGTERM, and SIGKILL if need be
    end = await command.over                                        # it is over

    done = await processes.run(argv, ..., output=Output(...))       # all of that in one

A command has no stdin unless it is talked to, a session of its own, and exactly the environment it is given. It is
over when its process is over: children that keep its output open do not hold it up; what they
write later is read and thrown away, so that they do not choke on it. They live until they end
or the session does.
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
from parley.workspace.process.command import Command, End, spelled
from parley.workspace.process.output import Output

if TYPE_CHECKING:
    from subprocess import Popen

__all__ = ["Command", "End", "Finished", "Processes"]

ROOT = Path(__file__).parents[3]
BOOT = (
    "import sys; sys.path.append(sys.argv[1]); from parley.workspace.process.supervisor import main; "
    "main(int(sys.argv[2]), may_adopt=sys.argv[3] == 'adopt')"
)
"""Our own modules come last on the path, so that they cannot stand in for the standard library's."""
FOR_THE_LOADER = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""The only variables the guard gets: some interpreters do not start without."""
END, HURRY = b"e", b"h"
"""As supervisor.py has them."""
START_SECONDS = 10.0
END_SECONDS = 5.0
"""How long a command may take to end once it was told to. The guard kills within two."""
HURRY_SECONDS = 0.5
"""From the moment the engine has to be gone soon until what still runs is killed."""
CUT_SECONDS = 2.0
"""How long an interrupt waits for the death of a command. It goes on dying without anybody who waits."""


class Finished(Struct, frozen=True, kw_only=True):
    """A command that is over."""

    exit_code: int
    """Negative for a signal, as the operating system's word has it."""
    output: bytes
    """The beginning, up to the limit."""
    total_bytes: int
    spilled_to: str | None
    flaw: str = ""
    """Why the file is not complete, if it is not."""
    last_words: str
    """What it wrote to the descriptor `keeper.LAST_WORDS`."""
    timed_out: bool


class Processes:
    """All commands of a session."""

    def __init__(self, *, may_adopt: bool = True) -> None:
        self._guard: Guard | None = None
        self._given_up: list[Guard] = []
        self._may_adopt = may_adopt
        self._commands: dict[Command, Guard] = {}
        self._turnstile = asyncio.Lock()
        self._is_ended = False
        self.hides_engine = False
        """Whether commands must not trace this process or read its memory; for a process that is all ours."""

    async def run(
        self,
        argv: list[str],
        *,
        cwd: str,
        environment: Mapping[str, str],
        timeout_seconds: float,
        output: Output,
    ) -> Finished:
        """Run a command to its end. Cancelling kills it. Raises ToolError if it cannot be run."""
        try:
            command = await self.start(argv, cwd=cwd, environment=environment, take=output.take)
            end, timed_out = await self.wait(command, timeout_seconds)
        finally:
            output.close()
        return self.finished(end, timed_out, output)

    @staticmethod
    def finished(end: End, timed_out: bool, output: Output) -> Finished:
        """A command that is over, with what it wrote. Raises ToolError if it was never run."""
        if end.flaw:
            raise ToolError(end.flaw)
        return Finished(
            exit_code=end.exit_code,
            output=bytes(output.kept),
            total_bytes=output.total_bytes,
            spilled_to=str(output.path) if output.path else None,
            flaw=output.flaw,
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
    ) -> Command:
        """Start a command whose output goes to `take`. Raises ToolError if it cannot be started.

        One whose stderr is taken by itself is talked to: what it shall read is given to its `feed`.
        """
        request = spelled(argv, cwd, environment)
        if self._is_ended:
            raise ToolError("the command could not be started: the session is ending")
        try:
            command = await self._handed_over(environment, take, take_errors)
        except OSError as flaw:
            raise ToolError(f"the command could not be started: {flaw.strerror}") from None
        try:
            async with asyncio.timeout(START_SECONDS):
                trouble = await command.begin(request)
        except TimeoutError:
            self._give_up(command)
            trouble = f"the process that guards commands did not answer within {START_SECONDS:.0f} s"
        except BaseException:
            command.drop()
            raise
        if trouble:
            command.drop()
            raise ToolError(f"the command could not be started: {trouble}")
        return command

    async def wait(self, command: Command, timeout_seconds: float) -> tuple[End, bool]:
        """How it ended, and whether its time was up. Cancelling kills it, and returns when it is dead."""
        try:
            done, _ = await asyncio.wait({command.over}, timeout=timeout_seconds)
            if done:
                return command.over.result(), False
            command.stop()
            done, _ = await asyncio.wait({command.over}, timeout=END_SECONDS)
        except asyncio.CancelledError:
            await self.kill(command)
            raise
        if not done:
            self._give_up(command)
            command.drop()
            return End(-signal.SIGKILL), True
        return command.over.result(), True

    async def kill(self, command: Command) -> None:
        """Stop it, and wait a moment until it is dead: who goes on behind it must not meet it any more."""
        command.stop()
        try:
            await asyncio.wait({command.over}, timeout=CUT_SECONDS)
        finally:
            command.drop()

    def hurry(self) -> None:
        """The engine must be gone soon: what still runs in a moment is killed, and nothing can be started any more."""
        asyncio.get_running_loop().call_later(HURRY_SECONDS, self._end_now)

    def _end_now(self) -> None:
        from parley.workspace.process.tree import kill_beside

        self._is_ended = True
        guards = (*self._given_up, *([] if self._guard is None else [self._guard]))
        for guard in guards:
            guard.hurry()
        kill_beside({guard.pid for guard in guards})  # a search, or a helper for the key, has no guard

    async def close(self) -> None:
        """End everything that still runs; when this returns, it is gone."""
        for command in list(self._commands):
            command.drop()
        if self._guard is not None:
            self._given_up.append(self._guard)
            self._guard = None
        while self._given_up:
            await self._given_up[0].end()
            del self._given_up[0]

    async def _handed_over(
        self, environment: Mapping[str, str], take: Callable[[bytes], None], take_errors: Callable[[bytes], None] | None
    ) -> Command:
        """A command whose keeper is about to start. Raises OSError."""
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            line, far_end = socket.socketpair()
            ours.callback(line.close)
            theirs.callback(far_end.close)
            heard, said = new_pipe(ours, theirs)
            passed = [far_end.fileno(), said]
            more: dict[str, Any] = {}
            if take_errors is not None:
                fed, given = new_pipe(theirs, ours)
                cried, crying = new_pipe(ours, theirs)
                passed += [fed, crying]
                more = {"feed": given, "errors": (cried, take_errors)}
            async with self._turnstile:
                guard = await self._pass(passed, environment)
            ours.pop_all()
        command = Command(line, (heard, take), lambda done: self._commands.pop(done, None), **more)
        self._commands[command] = guard
        return command

    async def _pass(self, descriptors: list[int], environment: Mapping[str, str]) -> Guard:
        """Give descriptors to the guard, to a new one if the last is gone; to which. Raises OSError."""
        guard = self._guard
        if guard is None or guard.gone:
            guard = self._another(environment)
        try:
            await guard.take(descriptors)
        except OSError as flaw:
            if flaw.errno not in (errno.EPIPE, errno.ECONNRESET):
                raise
            guard = self._another(environment)
            await guard.take(descriptors)
        return guard

    def _another(self, environment: Mapping[str, str]) -> Guard:
        if self._guard is not None:
            self._given_up.append(self._guard)
            self._guard = None
        if self.hides_engine:
            from parley.workspace.process.tree import hide_memory

            hide_memory()
        self._guard = Guard(environment, self._may_adopt)
        return self._guard

    def _give_up(self, command: Command) -> None:
        """Its guard, or its keeper, was stopped. The guard ends what it started; the next command gets another."""
        guard = self._commands.get(command)
        if guard is not None and guard is self._guard:
            guard.dismiss()
            self._given_up.append(guard)
            self._guard = None


class Guard:
    """Our end of a guard process. Raises OSError if it cannot be started."""

    def __init__(self, environment: Mapping[str, str], may_adopt: bool) -> None:
        import subprocess

        self._control, theirs = socket.socketpair()
        self._control.setblocking(False)
        mode = "adopt" if may_adopt else "group"
        try:
            self._process: Popen[bytes] = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", BOOT, str(ROOT), str(theirs.fileno()), mode],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={name: environment[name] for name in FOR_THE_LOADER if name in environment},
                start_new_session=True,
            )
        except BaseException:
            self._control.close()
            raise
        finally:
            theirs.close()
        self.gone = False
        self.pid = self._process.pid
        asyncio.get_running_loop().add_reader(self._control, self._lost)

    async def take(self, descriptors: list[int]) -> None:
        """Raises OSError."""
        while True:
            try:
                socket.send_fds(self._control, [b"!"], descriptors)
                return
            except BlockingIOError:
                await writable(self._control)

    def hurry(self) -> None:
        """Have it kill soon what does not end."""
        if not self.gone:
            self._send(HURRY)

    def dismiss(self) -> None:
        """Let it end everything, and itself."""
        if not self._send(END):  # it was stopped, and has not read what came before
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)
        self._process.send_signal(signal.SIGCONT)

    async def end(self) -> None:
        """Dismiss it and wait until all is done."""
        if self.gone:
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
        """It never speaks, so this is its end: it was killed, could not start, or is done."""
        asyncio.get_running_loop().remove_reader(self._control)
        self._forget()

    def _forget(self) -> None:
        self.gone = True
        self._control.close()
        self._process.wait()


def new_pipe(readers: contextlib.ExitStack, writers: contextlib.ExitStack) -> tuple[int, int]:
    """A pipe whose ends are closed with those who hold them."""
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
