"""An engine in a process of its own: ours, or the original.

The pipes are read and written without a thread, on any loop that can wait for a descriptor;
on Windows, where none can, threads do it. The process leads a group of its own: a Ctrl-C in
the terminal is the program's, which then closes the engine in good order, and what the engine
leaves behind is found and ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress

from parley.sdk.errors import CLIConnectionError, CLINotFoundError
from parley.sdk.launch.pipes import ON_WINDOWS, exited, read, writable, written
from parley.sdk.runtime.background import Job, log, start
from parley.sdk.runtime.transport import Ended

TAIL_BYTES = 64 * 1024
"""As much of stderr as an error carries."""
ENDS_SECONDS = 5.0
"""How long an idle engine has to end by itself once its input has ended."""
TERMINATED_SECONDS = 3.0
"""And how long after SIGTERM, which every engine gets before it is killed. Ours gives its commands 2 s of that."""


class Process:
    def __init__(
        self,
        argv: Sequence[str],
        cwd: str,
        environment: Mapping[str, str],
        told: Callable[[str], None],
        user: str | None = None,
        cleanup: Callable[[], None] = lambda: None,
    ) -> None:
        self._argv = list(argv)
        self._cwd = cwd
        self._environment = dict(environment)
        self._told = told
        self._user = user
        self._cleanup = cleanup
        self._child: subprocess.Popen[bytes] | None = None
        self._held: deque[bytes] = deque()
        self._writing: Job | None = None
        self._complaining: Job | None = None
        self._broken = False
        self._tail = bytearray()
        self._used: set[object] = set()
        """The pipes that a job reads or writes. Only it may close one: the loop may be waiting for it."""

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    async def open(self) -> None:
        self._child = self._spawned()
        self._complaining = start(self._listen)

    def _spawned(self) -> subprocess.Popen[bytes]:
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
                env=self._environment,
                bufsize=0,
                start_new_session=not ON_WINDOWS,
                user=self._user,
            )
        except FileNotFoundError:
            self._cleanup()
            raise CLINotFoundError("there is no such engine", self._argv[0]) from None
        except (OSError, ValueError, subprocess.SubprocessError) as flaw:
            self._cleanup()
            raise CLIConnectionError(f"the engine {self._argv[0]} cannot be started: {flaw}") from None
        if not ON_WINDOWS:
            for pipe in (child.stdin, child.stdout, child.stderr):
                os.set_blocking(pipe.fileno(), False)  # type: ignore[union-attr]  # all three are pipes
        return child

    @property
    def child(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            raise CLIConnectionError("the engine is not started")
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

    def write(self, data: bytes) -> None:
        if self._broken or self.child.stdin is None or self.child.stdin.closed:
            raise CLIConnectionError("the engine does not read any more")
        if not self._held:
            data = self._tried(data)
        if data:
            self._held.append(data)
            if self._writing is None:
                self._writing = start(self._write_held)

    def _tried(self, data: bytes) -> bytes:
        """Write what can be written now; what is left of it."""
        pipe = self.child.stdin
        assert pipe is not None
        if ON_WINDOWS:
            return data
        try:
            return data[os.write(pipe.fileno(), data) :]
        except BlockingIOError:
            return data
        except OSError as flaw:
            self._broken = True
            raise CLIConnectionError(f"the engine does not read any more: {flaw.strerror}") from None

    async def _write_held(self) -> None:
        pipe = self.child.stdin
        assert pipe is not None
        self._used.add(pipe)
        try:
            while self._held and not pipe.closed and not self._broken:
                await writable(pipe.fileno())
                left = await written(pipe.fileno(), self._held[0])
                if left:
                    self._held[0] = left
                else:
                    self._held.popleft()
        except (OSError, ValueError, CLIConnectionError):
            self._broken = True
            self._held.clear()
        finally:
            self._writing = None
            self._used.discard(pipe)
            if self._broken:
                self._close(pipe)

    async def flush(self) -> None:
        while (job := self._writing) is not None:
            await job.wait()
        if self._broken:
            raise CLIConnectionError("the engine does not read any more")

    async def end_input(self) -> None:
        with suppress(CLIConnectionError):
            await self.flush()
        self._close(self.child.stdin)

    async def _listen(self) -> None:
        """stderr, line by line."""
        pipe, rest = self.child.stderr, b""
        assert pipe is not None
        self._used.add(pipe)
        try:
            while not pipe.closed and (chunk := await read(pipe.fileno())):
                self._tail = (self._tail + chunk)[-TAIL_BYTES:]
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._tell(line)
        finally:
            self._close(pipe)
            if rest:
                self._tell(rest)

    def _tell(self, line: bytes) -> None:
        try:
            self._told(line.decode(errors="replace").rstrip("\r"))
        except Exception:
            log.exception("the callback for stderr failed")

    async def ended(self) -> Ended:
        """Its output has ended; it gets a moment to end itself."""
        from anyio import move_on_after

        with move_on_after(ENDS_SECONDS):
            await exited(self.child)
            if self._complaining is not None:
                await self._complaining.wait()
        return self._end()

    async def close(self, busy: bool) -> Ended:
        from anyio import CancelScope, move_on_after

        if self._child is None:
            return Ended()
        try:
            with CancelScope(shield=True):
                if self._writing is not None:
                    self._writing.cancel()
                self._close(self.child.stdin)
                for number, seconds in ((0, 0.0 if busy else ENDS_SECONDS), (signal.SIGTERM, TERMINATED_SECONDS)):
                    if number:
                        self._signal(number)
                    with move_on_after(seconds):
                        await exited(self.child)
                    if self.child.poll() is not None:
                        break
                self._kill()
                await exited(self.child)
                with move_on_after(TERMINATED_SECONDS):
                    if self._complaining is not None:
                        await self._complaining.wait()
        except BaseException:
            # Nothing shields from asyncio's own cancellation; somebody else ends it then.
            self.abandon()
            raise
        self._used.clear()
        self._release()
        return self._end()

    def abandon(self) -> None:
        if self._child is None or self._child.returncode is not None:
            self._release()
            return
        self._broken = True
        if self._writing is None:
            self._close(self._child.stdin)
        self._signal(signal.SIGTERM)
        try:
            # No daemon: a program that ends now waits for it, and leaves nothing behind.
            threading.Thread(target=self._reap, name="parley reaper").start()
        except RuntimeError:  # the interpreter is ending
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
        """The group outlives its leader for as long as one of it is left."""
        with suppress(OSError):
            if ON_WINDOWS:
                self.child.kill()
            else:
                os.killpg(self.child.pid, signal.SIGKILL)

    def _release(self) -> None:
        if self._child is not None:
            for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
                if pipe not in self._used:
                    self._close(pipe)
        self._cleanup()

    def _close(self, pipe: object) -> None:
        if pipe is None or pipe.closed:  # type: ignore[attr-defined]  # a pipe of Popen
            return
        with suppress(Exception):  # there may be no loop any more that could be told
            from anyio import notify_closing

            notify_closing(pipe.fileno())  # type: ignore[attr-defined]  # as above
        with suppress(OSError):
            pipe.close()  # type: ignore[attr-defined]  # as above
