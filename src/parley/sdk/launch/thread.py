"""Run the engine in a thread with its own asyncio loop, for programs on trio."""

from __future__ import annotations

import asyncio
import socket
import threading

from parley.sdk.launch.in_process import InProcessEngine
from parley.sdk.launch.session_wire import SessionWire
from parley.sdk.launch.worker_process import WorkerSession
from parley.sdk.runtime.background import log
from parley.sdk.runtime.transport import Ended


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
