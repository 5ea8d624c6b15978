"""Find an engine (Parley or Claude Code) and run it as a subprocess.

The executable is `Options.cli_path`, the installed `parley`, or `claude` on the PATH. The event loop reads and writes
the pipes (see pipes.py). The engine leads its own process group, so Ctrl-C in the terminal reaches only the program,
which then closes the engine; processes that the engine leaves running are killed with the group.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from parley.sdk.errors import CLIConnectionError, CLINotFoundError
from parley.sdk.launch.pipes import NOT_READ, ON_WINDOWS, Writer, read, wait_exited
from parley.sdk.runtime.background import Job, log, start
from parley.sdk.runtime.transport import Ended
from parley.workspace.search_path import with_absolute_python_path

NAMES = ("parley", "claude")
FOLDERS = ("~/.local/bin", "~/.claude/local", "/usr/local/bin", "/opt/homebrew/bin")


def find_engine(given: str | Path | None, environment: Mapping[str, str]) -> str:
    """Return the path of the engine's executable. Raises CLINotFoundError, CLIConnectionError."""
    if given is not None:
        return resolve_path(str(given), environment)
    # pip installs `parley` next to the interpreter, which may not be on the PATH.
    installed = Path(sys.executable).with_name("parley")
    if os.access(installed, os.X_OK):
        return str(installed)
    path = environment.get("PATH", os.defpath)
    for name in NAMES:
        found = shutil.which(name, path=os.pathsep.join([path, *map(os.path.expanduser, FOLDERS)]))
        if found:
            return check_runnable(found)
    raise CLINotFoundError(f"no engine found: neither {' nor '.join(NAMES)} is on the PATH; set Options.cli_path")


def resolve_path(given: str, environment: Mapping[str, str]) -> str:
    """Resolve a path, or a name to look up on the PATH."""
    if os.path.dirname(given):
        path = os.path.abspath(os.path.expanduser(given))
        if not os.path.exists(path):
            raise CLINotFoundError("the engine does not exist", path)
        return check_runnable(path)
    found = shutil.which(given, path=environment.get("PATH", os.defpath))
    if found is None:
        raise CLINotFoundError("the engine is not on the PATH", given)
    return check_runnable(found)


def check_runnable(path: str) -> str:
    if path.lower().endswith((".cmd", ".bat")):
        raise CLIConnectionError(
            f"{path} is a batch file, which cannot receive arguments unchanged; give the path of the program itself"
        )
    return path


TAIL_BYTES = 64 * 1024
"""How much of stderr an error contains."""
ENDS_SECONDS = 5.0
"""How long an idle engine has to exit after its input was closed."""
TERMINATED_SECONDS = 3.0
"""How long an engine has to exit after SIGTERM before it is killed. Parley gives its commands 2 s of that."""


class EngineProcess:
    """A `Wire` to an engine that runs as a subprocess."""

    def __init__(
        self,
        argv: Sequence[str],
        cwd: str,
        environment: Mapping[str, str],
        on_stderr: Callable[[str], None],
        user: str | None = None,
        cleanup: Callable[[], None] = lambda: None,
    ) -> None:
        self._argv = list(argv)
        self._cwd = cwd
        self._environment = dict(environment)
        self._on_stderr = on_stderr
        self._user = user
        self._cleanup = cleanup
        self._child: subprocess.Popen[bytes] | None = None
        self._writer: Writer | None = None
        self._reading_stderr: Job | None = None
        self._tail = bytearray()
        self._used: set[object] = set()
        """The pipes that a job reads. Only that job may close them: the loop may be waiting for them."""

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    async def open(self) -> None:
        child = self._child = self._spawn()
        assert child.stdin is not None
        self._writer = Writer(child.stdin, on_broken=lambda: self._close(child.stdin))
        self._reading_stderr = start(self._read_stderr)

    def _spawn(self) -> subprocess.Popen[bytes]:
        if not os.path.isdir(self._cwd):
            self._cleanup()
            raise CLIConnectionError(f"the working directory does not exist: {self._cwd}")
        try:
            child = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._cwd,
                env=with_absolute_python_path(self._environment),
                bufsize=0,
                start_new_session=not ON_WINDOWS,
                user=self._user,
            )
        except FileNotFoundError:
            self._cleanup()
            raise CLINotFoundError("the engine does not exist", self._argv[0]) from None
        except KeyError:  # from the password database
            self._cleanup()
            raise CLIConnectionError(f"cannot start the engine: there is no user {self._user!r}") from None
        except (OSError, ValueError, subprocess.SubprocessError) as exc:
            self._cleanup()
            raise CLIConnectionError(f"cannot start the engine {self._argv[0]}: {exc}") from None
        if not ON_WINDOWS:
            for pipe in (child.stdin, child.stdout, child.stderr):
                os.set_blocking(pipe.fileno(), False)  # type: ignore[union-attr]  # all three are pipes
        return child

    @property
    def child(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            raise CLIConnectionError("the engine has not been started")
        return self._child

    async def chunks(self) -> AsyncIterator[bytes]:
        output = self.child.stdout
        assert output is not None
        self._used.add(output)
        try:
            while not output.closed and (chunk := await read(output.fileno())):
                yield chunk
        finally:
            self._close(output)

    @property
    def writer(self) -> Writer:
        if self._writer is None:
            raise CLIConnectionError("the engine has not been started")
        return self._writer

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def flush(self) -> None:
        await self.writer.wait()
        if self.writer.is_broken:
            raise CLIConnectionError(NOT_READ)

    async def end_input(self) -> None:
        with suppress(CLIConnectionError):
            await self.flush()
        self._close(self.child.stdin)

    async def _read_stderr(self) -> None:
        """Report stderr line by line and keep its tail."""
        pipe, rest = self.child.stderr, b""
        assert pipe is not None
        self._used.add(pipe)
        try:
            while not pipe.closed and (chunk := await read(pipe.fileno())):
                self._tail = (self._tail + chunk)[-TAIL_BYTES:]
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._report_line(line)
        finally:
            self._close(pipe)
            if rest:
                self._report_line(rest)

    def _report_line(self, line: bytes) -> None:
        try:
            self._on_stderr(line.decode(errors="replace").rstrip("\r"))
        except Exception:
            log.exception("the stderr callback raised an exception")

    async def ended(self) -> Ended:
        """Wait for the exit of an engine that has closed its output."""
        from anyio import move_on_after

        with move_on_after(ENDS_SECONDS):
            await wait_exited(self.child)
            if self._reading_stderr is not None:
                await self._reading_stderr.wait()
        return self._end()

    async def close(self, busy: bool) -> Ended:
        from anyio import CancelScope, move_on_after

        if self._child is None:
            return Ended()
        try:
            with CancelScope(shield=True):
                self.writer.cancel()
                self._close(self.child.stdin)
                for number, seconds in ((0, 0.0 if busy else ENDS_SECONDS), (signal.SIGTERM, TERMINATED_SECONDS)):
                    if number:
                        self._signal(number)
                    with move_on_after(seconds):
                        await wait_exited(self.child)
                    if self.child.poll() is not None:
                        break
                self._kill()
                await wait_exited(self.child)
                with move_on_after(TERMINATED_SECONDS):
                    if self._reading_stderr is not None:
                        await self._reading_stderr.wait()
        except BaseException:
            # The shield does not stop asyncio's own cancellation; a thread ends the process then.
            self.abandon()
            raise
        self._used.clear()
        self._release()
        return self._end()

    def abandon(self) -> None:
        if self._child is None or self._child.returncode is not None:
            self._release()
            return
        self.writer.is_broken = True
        if not self.writer.is_busy:
            self._close(self._child.stdin)
        self._signal(signal.SIGTERM)
        try:
            # Not a daemon: a program that exits now waits for the thread and leaves no process running.
            threading.Thread(target=self._reap, name="parley reaper").start()
        except RuntimeError:  # the interpreter is shutting down
            self._reap()

    def _reap(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.child.wait(TERMINATED_SECONDS)
        self._kill()
        self.child.wait()
        self._release()

    def _end(self) -> Ended:
        stderr = bytes(self._tail).decode(errors="replace").strip()
        return Ended(self.child.returncode, stderr, tuple(self._argv))

    def _signal(self, number: int) -> None:
        with suppress(OSError, ValueError):
            self.child.send_signal(number)

    def _kill(self) -> None:
        """Kill the process group, which exists until its last member has exited."""
        with suppress(OSError):
            if ON_WINDOWS:
                self.child.kill()
            else:
                os.killpg(self.child.pid, signal.SIGKILL)

    def _release(self) -> None:
        if self._child is not None:
            for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
                if pipe not in self._used and not (pipe is self._child.stdin and self.writer.is_busy):
                    self._close(pipe)
        self._cleanup()

    def _close(self, pipe: object) -> None:
        if pipe is None or pipe.closed:  # type: ignore[attr-defined]  # a pipe of Popen
            return
        with suppress(Exception):  # the loop may already be closed
            from anyio import notify_closing

            notify_closing(pipe.fileno())  # type: ignore[attr-defined]  # as above
        with suppress(OSError):
            pipe.close()  # type: ignore[attr-defined]  # as above
