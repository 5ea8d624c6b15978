"""A worker process: runs the engines of many sessions for the program that started it.

    python -c BOOT ... CONTROL HOST     # started by worker_pool.py, with the rest of the command line

The program passes a connected socket for each session over the control socket. The worker exits when the program is
gone, and ends its sessions first. A program on trio has the same session in a thread of its own (`ThreadWire`).

See also: `session_wire.py` for what is sent on the socket of a session, `worker_pool.py` for the program's side.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import traceback
from collections.abc import AsyncIterator

from parley.sdk.launch.in_process import InProcessEngine, tune_gc
from parley.sdk.launch.session_wire import (
    STOP_SECONDS,
    FrameKind,
    FrameReader,
    SessionLaunch,
    SessionWire,
    encode_frame,
)
from parley.sdk.runtime.background import log
from parley.sdk.runtime.transport import Ended

HOST_CHECK_SECONDS = 1.0
"""How often to look for the program where the system cannot report its end."""


class WorkerSession(asyncio.Protocol):
    """One session, and the transport of its engine."""

    def __init__(self, engine: InProcessEngine | None = None) -> None:
        """`engine`: if it is in the same process; otherwise, the program says what to launch."""
        self._frames = FrameReader()
        self._incoming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._launch: asyncio.Future[SessionLaunch | None] = asyncio.get_running_loop().create_future()
        self._outgoing: list[bytes] = []
        self._connection: asyncio.WriteTransport | None = None
        self._is_drained = asyncio.Event()
        self._is_drained.set()
        self._engine = engine
        self._serving: asyncio.Task[None] | None = None

    async def serve(self, connected: socket.socket) -> None:
        """Run the engine until it ends, and report its exit code."""
        self._serving = asyncio.current_task()
        await asyncio.get_running_loop().connect_accepted_socket(lambda: self, connected)
        engine = self._engine or await self._receive_engine()
        if engine is None:
            return
        try:
            await engine.run(self)
        except Exception:
            self._report(traceback.format_exc())
        finally:
            self._flush()
            self._send(FrameKind.ENDED, b"%d" % (1 if engine.exit_code is None else engine.exit_code))
            if self._connection is not None:
                self._connection.close()

    async def _receive_engine(self) -> InProcessEngine | None:
        """The engine that the program launches; None if it is gone."""
        launch = await self._launch
        if launch is not None:
            self._engine = InProcessEngine(launch.argv, launch.cwd, launch.environment, self._report)
        return self._engine

    def stop(self) -> None:
        """Stop the session; cancel it if it does not end."""
        if self._engine is not None:
            self._engine.stop()
        self._end_soon()

    def abandon(self) -> None:
        """Stop the session at once, because the client is gone."""
        if self._engine is not None:
            self._engine.abandon()
        self._end_soon()

    def _end_soon(self) -> None:
        self._incoming.put_nowait(None)
        if self._serving is not None:
            asyncio.get_running_loop().call_later(STOP_SECONDS, self._serving.cancel)

    def _report(self, line: str) -> None:
        self._send(FrameKind.STDERR, line.encode(errors="replace"))

    def _send(self, kind: FrameKind, payload: bytes) -> None:
        if self._connection is not None:
            self._connection.write(encode_frame(kind, payload))

    # The connection, as asyncio calls it.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._connection = transport

    def data_received(self, data: bytes) -> None:
        for kind, payload in self._frames.feed(data):
            match kind:
                case FrameKind.LAUNCH:
                    self._launch.set_result(SessionLaunch.decode(payload))
                case FrameKind.DATA:
                    self._incoming.put_nowait(payload)
                case FrameKind.END_INPUT:
                    self._incoming.put_nowait(None)
                case FrameKind.STOP:
                    self.stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, or the session has ended."""
        self._connection = None
        self._is_drained.set()
        if not self._launch.done():
            self._launch.set_result(None)
        if self._serving is not None and not self._serving.done():
            self.abandon()

    def pause_writing(self) -> None:
        self._is_drained.clear()

    def resume_writing(self) -> None:
        self._is_drained.set()

    # The transport, as the engine calls it.

    async def chunks(self) -> AsyncIterator[bytes]:
        while (chunk := await self._incoming.get()) is not None:
            yield chunk

    def write(self, data: bytes) -> None:
        """Lines written in one iteration of the loop are sent in one frame."""
        if self._connection is None:
            raise BrokenPipeError("the client has disconnected")
        if not data:
            return
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outgoing.append(data)

    def _flush(self) -> None:
        if self._outgoing:
            self._send(FrameKind.DATA, b"".join(self._outgoing))
            self._outgoing.clear()

    async def drain(self) -> None:
        self._flush()
        await self._is_drained.wait()

    def close(self) -> None:
        """The connection closes after the exit code is sent."""


class WorkerServer:
    """Accepts sessions until the program is gone."""

    def __init__(self, control: socket.socket, host_pid: int) -> None:
        self._control = control
        self._host_pid = host_pid
        self._is_abandoned = asyncio.Event()
        self._sessions: dict[asyncio.Task[None], WorkerSession] = {}

    async def run(self) -> None:
        self._watch_host()
        self._control.setblocking(False)
        asyncio.get_running_loop().add_reader(self._control, self._accept)
        await self._is_abandoned.wait()
        for session in self._sessions.values():
            session.abandon()
        if self._sessions:
            await asyncio.wait(self._sessions, timeout=2 * STOP_SECONDS)

    def _accept(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data, descriptors = b"", []
        if not data:
            asyncio.get_running_loop().remove_reader(self._control)
            self._is_abandoned.set()
        for descriptor in descriptors:
            session = WorkerSession()
            task = asyncio.create_task(session.serve(socket.socket(fileno=descriptor)))
            self._sessions[task] = session
            task.add_done_callback(self._sessions.pop)

    def _watch_host(self) -> None:
        """Learn of the end of the program, even if a process that it forked keeps the control socket open."""
        loop = asyncio.get_running_loop()
        try:
            loop.add_reader(os.pidfd_open(self._host_pid), self._is_abandoned.set)
        except (AttributeError, OSError):  # not Linux, not permitted, or it is gone
            loop.call_later(HOST_CHECK_SECONDS, self._watch_host)
        if os.getppid() != self._host_pid:
            self._is_abandoned.set()


def main(control: int, host_pid: int) -> None:
    async def serve() -> None:
        tune_gc()
        await WorkerServer(socket.socket(fileno=control), host_pid).run()

    asyncio.run(serve())
    sys.stderr.flush()
    os._exit(0)  # without clearing all modules


class ThreadWire(SessionWire):
    """A `Wire` to an engine in a thread of this process."""

    def __init__(self, engine: InProcessEngine) -> None:
        super().__init__(engine.argv, on_stderr=lambda line: None)  # the engine reports its lines itself
        self._engine = engine

    def connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        threading.Thread(target=self._work, args=(theirs,), name="parley engine", daemon=True).start()
        return ours

    def _work(self, connection: socket.socket) -> None:
        async def serve() -> None:
            await WorkerSession(self._engine).serve(connection)

        try:
            asyncio.run(serve())
        except Exception:
            log.exception("the engine in this process failed")

    def _end(self) -> Ended:
        return self._engine.ended()
