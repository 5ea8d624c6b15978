"""Start the engine of a session: in this process, or in a process of its own.

Both read the same lines as an engine on stdin and write the same lines as one on stdout. In this process, sessions
share the memory and the event loop; in processes, one session cannot harm another.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping

from parley.local_engine import LocalEngine
from parley.protocol.base import Struct
from parley.stores.base import Store
from parley.workspace.search_path import with_absolute_python_path

STREAM = ("--print", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
END_SESSION = b'{"type":"control_request","request_id":"close","request":{"subtype":"end_session"}}\n'
CHUNK_BYTES = 256 * 1024
STDERR_BYTES = 64 * 1024
STOP_SECONDS = 5.0
"""How long an engine has to end by itself after its input has ended, and again after it was stopped."""


class EngineStart(Struct, frozen=True):
    """What an engine is started with."""

    argv: tuple[str, ...]
    """The options of the session."""
    cwd: str
    environment: Mapping[str, str]
    on_lines: Callable[[bytes], None]
    """Receives whole lines."""
    on_input: Callable[[bytes], None]
    """Called with what is written to it."""
    on_end: Callable[[str], None]
    """Called once, after the last line, with what the engine wrote to stderr."""
    store: Store | None = None
    """Where its transcripts are kept, instead of where the options say. Only for an engine in this process."""


class Engine(ABC):
    """A task that runs until the engine has ended."""

    def __init__(self, start: EngineStart) -> None:
        self._start = start
        self._is_killed = False
        self._task = asyncio.create_task(self._run())

    def write(self, data: bytes) -> None:
        """Give it lines. Never waits."""
        self._start.on_input(data)
        self._write(data)

    @abstractmethod
    def _write(self, data: bytes) -> None: ...

    @abstractmethod
    async def _run(self) -> None: ...

    @abstractmethod
    def _end_input(self) -> None: ...

    @abstractmethod
    def stop(self) -> None:
        """Interrupt its turn. It ends after the result."""

    @abstractmethod
    def _abort(self) -> None:
        """End it at once; it still says that it has ended."""

    @abstractmethod
    def silence(self) -> None:
        """Begin to end it, as `kill` does: from now on it says nothing, not even that it has ended."""

    async def close(self) -> None:
        """End its input and wait until it has ended. Requests to the client that are still open fail."""
        self._end_input()
        for give_up in (self.stop, self._abort):
            done, _ = await asyncio.wait([self._task], timeout=STOP_SECONDS)
            if done:
                return
            give_up()
        await asyncio.wait([self._task])

    async def kill(self) -> None:
        """End it at once. A request that is open stays open, and is sent again when the session is resumed."""
        self.silence()
        await asyncio.wait([self._task])

    def _on_lines(self, data: bytes) -> None:
        if not self._is_killed:
            self._start.on_lines(data)


class TaskEngine(Engine):
    """An engine in this process."""

    def __init__(self, start: EngineStart, begins: asyncio.Future[EngineStart] | None = None) -> None:
        """`begins`: gets what the engine is really started with, later. Until then, what is written waits."""
        self._engine: LocalEngine | None = None
        self._is_stopped = False
        self._begins = begins
        self._incoming: asyncio.Queue[bytes | None] = asyncio.Queue()
        super().__init__(start)

    def _write(self, data: bytes) -> None:
        self._incoming.put_nowait(data)

    def stop(self) -> None:
        self._is_stopped = True
        if self._engine is not None:
            self._engine.stop()

    def _end_input(self) -> None:
        self._incoming.put_nowait(None)
        if self._begins is not None:
            self._begins.cancel()

    def _abort(self) -> None:
        self._task.cancel()

    def silence(self) -> None:
        if not self._is_killed:  # a second one would interrupt the end of its processes and connections
            self._is_killed = True
            self._task.cancel()

    async def _run(self) -> None:
        try:
            start = self._start if self._begins is None else await self._begins
            engine = self._engine = LocalEngine([*STREAM, *start.argv], start.cwd, start.environment, start.store)
            if self._is_stopped:
                engine.stop()
            try:
                await engine.run(TaskTransport(self._incoming, self._on_lines))
            except Exception as exc:
                engine.warn(f"internal error: {type(exc).__name__}: {exc}")
        finally:
            if not self._is_killed:
                self._start.on_end("" if self._engine is None else self._engine.stderr())


class TaskTransport:
    """The transport of a `TaskEngine`."""

    def __init__(self, incoming: asyncio.Queue[bytes | None], write: Callable[[bytes], None]) -> None:
        self._incoming = incoming
        self.write = write

    async def chunks(self) -> AsyncIterator[bytes]:
        while (chunk := await self._incoming.get()) is not None:
            yield chunk

    async def drain(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        """The task ends with the session."""


class ProcessEngine(Engine):
    """An engine in a process of its own."""

    def __init__(self, start: EngineStart) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._early: list[bytes] = []
        """What was written before the process was there."""
        super().__init__(start)

    def _write(self, data: bytes) -> None:
        if self._process is None:
            self._early.append(data)
        elif self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(data)

    def stop(self) -> None:
        self._signal(signal.SIGTERM)

    def _end_input(self) -> None:
        self._write(END_SESSION)

    def _abort(self) -> None:
        self._signal(signal.SIGKILL)

    def silence(self) -> None:
        self._is_killed = True
        self._signal(signal.SIGKILL)
        if self._process is None:
            self._task.cancel()

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            os.kill(self._process.pid, number)  # not send_signal, which may take the exit status from the loop

    async def _run(self) -> None:
        errors = ""
        try:
            errors = await self._serve()
        except OSError as exc:
            errors = f"cannot start the engine process: {exc}"
        except Exception as exc:  # a line that the gateway cannot handle
            errors = f"internal error: {type(exc).__name__}: {exc}"
        finally:
            self._signal(signal.SIGKILL)  # its lines are no longer read
            if not self._is_killed:
                self._start.on_end(errors)

    async def _serve(self) -> str:
        start = self._start
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # the working directory is the user's: no module may come from there
            *("-m", "parley", *STREAM, *start.argv),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=start.cwd,
            env={**with_absolute_python_path(start.environment), "PARLEY_DIES_WITH_CLIENT": "1"},
        )
        assert process.stdin is not None
        process.stdin.write(b"".join(self._early))
        _, errors = await asyncio.gather(self._read_lines(process), self._read_errors(process))
        await process.wait()
        return errors

    async def _read_lines(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        started: list[bytes] = []
        """The parts of a line that has not ended."""
        while chunk := await process.stdout.read(CHUNK_BYTES):
            whole, end, rest = chunk.rpartition(b"\n")
            if end:
                self._on_lines(b"".join([*started, whole, end]))
                started.clear()
            started.append(rest)

    async def _read_errors(self, process: asyncio.subprocess.Process) -> str:
        assert process.stderr is not None
        kept = b""
        while chunk := await process.stderr.read(CHUNK_BYTES):
            kept = (kept + chunk)[-STDERR_BYTES:]
        return kept.decode(errors="replace").strip()
