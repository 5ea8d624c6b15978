"""Run the engine in this process instead of a subprocess.

It is built from the same command line and environment as a subprocess, sends the same messages, and
ends the same way: with an exit code and its warnings as stderr. On asyncio it shares the program's
event loop; on trio it runs in a thread with its own loop (`ThreadWire`).
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from parley.local_engine import LocalEngine
from parley.sdk.errors import CLIConnectionError
from parley.sdk.runtime.background import Job, log, on_trio, start
from parley.sdk.runtime.transport import Ended, Wire, log_line

if TYPE_CHECKING:
    from parley.transports.base import Transport

STOP_SECONDS = 5.0
"""How long an engine has to finish by itself, and again after `stop()`."""


class InProcessEngine(LocalEngine):
    """An engine in this process, as the client sees it."""

    def __init__(
        self,
        argv: Sequence[str],
        cwd: str,
        environment: Mapping[str, str],
        on_stderr: Callable[[str], None] | None,
        cleanup: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_stderr`: gets each line that a subprocess would write to stderr; without it they are logged."""
        super().__init__(argv, cwd, environment)
        self._on_stderr = on_stderr
        self._cleanup = cleanup

    def warn(self, text: str) -> None:
        super().warn(text)
        try:
            (self._on_stderr or log_line)(text)
        except Exception:
            log.exception("the stderr callback raised an exception")

    def refuse(self, text: str) -> None:
        if self._on_stderr is None:
            super().warn(text)  # the exception that the program gets says it
        else:
            self.warn(text)

    def ended(self) -> Ended:
        return Ended(self.exit_code, self.stderr(), tuple(self.argv))

    async def run(self, transport: Transport) -> None:
        """Serve the session until it ends."""
        try:
            await super().run(transport)
        finally:
            self._cleanup()


class RunnableEngine(Protocol):
    """An engine, or what plays one (`fake/in_process.py`)."""

    async def run(self, transport: Transport) -> None: ...

    def stop(self) -> None: ...

    def ended(self) -> Ended: ...


class SameLoop:
    """Runs the engine on the program's asyncio loop."""

    pid = None

    def __init__(self, engine: RunnableEngine) -> None:
        from parley.transports.base import create_pair

        self._runner = engine
        self._host, self._engine = create_pair()
        self._serving: Job | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._serving = start(self._run)

    async def _run(self) -> None:
        try:
            await self._runner.run(self._engine)
        finally:
            self._engine.close()

    def chunks(self) -> AsyncIterator[bytes]:
        return self._host.chunks()

    def write(self, data: bytes) -> None:
        try:
            self._host.write(data)
        except BrokenPipeError:
            raise CLIConnectionError("the engine no longer reads its input") from None

    async def flush(self) -> None:
        """Nothing is buffered."""

    async def end_input(self) -> None:
        self._host.close()

    async def ended(self) -> Ended:
        if self._serving is not None:
            await self._serving.wait()
        return self._runner.ended()

    async def close(self, busy: bool) -> Ended:
        if self._serving is not None:
            if busy:
                self._runner.stop()
            self._host.close()
            try:
                await self._ended_or_cancelled(self._serving)
            except asyncio.CancelledError:
                self.abandon()
                raise
        return self._runner.ended()

    async def _ended_or_cancelled(self, serving: Job) -> None:
        ways: tuple[Callable[[], None], ...] = (lambda: None, self._runner.stop, serving.cancel)
        for end in ways:
            end()
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await serving.wait()
                    return

    def abandon(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            with suppress(RuntimeError):  # the loop may close at this moment
                self._loop.call_soon_threadsafe(self._leave)

    def _leave(self) -> None:
        self._runner.stop()
        self._host.close()


def connect_in_process(engine: InProcessEngine) -> Wire:
    """Return a connection to an engine in this process."""
    if not on_trio():
        return SameLoop(engine)
    from parley.sdk.launch.worker_process import ThreadWire

    return ThreadWire(engine)


THRESHOLDS = (10_000, 50, 100)
"""With Python's own thresholds, a process with 1,000 sessions collects every few turns."""


def tune_gc() -> None:
    """Tune Python's garbage collector for a process that runs many sessions with `engine="local"`.

        tune_gc()
        clients = [Client(Options(engine="local")) for _ in range(1000)]

    Call it once, after your program has loaded its modules and before it opens sessions. It loads the engine,
    excludes all objects that exist from later collections (`gc.freeze`) and raises the thresholds of the collector,
    so that collections are rare and short. It changes the whole process, so Parley never calls it in yours; worker
    processes (`Options.workers`) call it themselves. A collector that you have disabled stays disabled.
    """
    load_engine()
    gc.collect()
    gc.freeze()
    current = gc.get_threshold()
    if current[0]:
        gc.set_threshold(*map(max, current, THRESHOLDS))


def load_engine() -> None:
    """Import what every session needs."""
    import parley.compose.composer
    import parley.engine.session.pump
    import parley.engine.turn.turn  # noqa: F401  # imported to be loaded, as are the others
