"""Run engines in a few long-lived worker processes, which many sessions share.

    wire = WorkerWire(4, SessionLaunch(argv, cwd, environment), on_stderr, cleanup)

A session goes to the worker with the fewest sessions; a worker is started when a session needs it. Each session has
a socket of its own, so clients on different loops and in different threads share a worker without sharing anything
here. A worker that dies ends its own sessions only, and another takes its place. Workers end with the program.

See also: `session_wire.py` for the connection to a session, `worker_process.py` for the other side.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from parley.sdk.errors import CLIConnectionError
from parley.sdk.launch.pipes import ON_WINDOWS, wait_exited
from parley.sdk.launch.session_wire import STOP_SECONDS, FrameKind, SessionLaunch, SessionWire
from parley.settings.secret_variables import without_secrets

BOOT = """\
import json, os, sys
sys.path[:], environment = json.load(sys.stdin)
os.environ.update(environment)
from parley.sdk.launch.worker_process import main
main(int(sys.argv[1]), int(sys.argv[2]))
"""
"""Secrets of the program's environment come over stdin, because other processes can read `environ` in /proc."""


class Worker:
    """A worker process."""

    def __init__(self) -> None:
        """Start it. Raises CLIConnectionError."""
        self.sessions = 0
        self._control, theirs = socket.socketpair()
        argv = [sys.executable, "-P", "-c", BOOT, str(theirs.fileno()), str(os.getpid())]
        try:
            self.child = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                cwd=os.sep,
                env=without_secrets(os.environ),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as exc:
            self._control.close()
            raise CLIConnectionError(f"cannot start a worker process with {sys.executable!r}: {exc}") from None
        finally:
            theirs.close()
        path = [os.path.abspath(folder) for folder in sys.path]
        assert self.child.stdin is not None
        with suppress(BrokenPipeError), self.child.stdin as stdin:
            stdin.write(json.dumps([path, dict(os.environ)]).encode())

    @property
    def is_alive(self) -> bool:
        return self.child.poll() is None

    def accept(self) -> socket.socket:
        """A connection to a new session. Raises OSError if the worker is gone."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b"s"], [theirs.fileno()])
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        return ours

    def disconnect(self) -> None:
        """Accept no more sessions. If this process started the worker, it ends its sessions and exits."""
        self._control.close()

    def wait(self) -> None:
        """Wait until the worker has exited, and kill it if it does not."""
        with suppress(subprocess.TimeoutExpired):
            self.child.wait(STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        with suppress(OSError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()


class WorkerPool:
    """The worker processes of a program."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        """The process that the workers belong to."""
        self.workers: list[Worker] = []
        self._lock = threading.RLock()  # the collector may release a session while another connects
        atexit.register(self.close)

    def connect(self, count: int) -> tuple[Worker, socket.socket]:
        """Start a session in one of the first `count` workers. Raises CLIConnectionError."""
        with self._lock:
            while True:
                worker = self._choose(count)
                try:
                    connection = worker.accept()
                except ConnectionError:
                    worker.kill()  # it is exiting
                    continue
                except OSError as exc:
                    raise CLIConnectionError(f"cannot connect to a worker process: {exc.strerror}") from None
                worker.sessions += 1
                return worker, connection

    def _choose(self, count: int) -> Worker:
        """The worker with the fewest sessions. A new one, if all are in use and there may be more."""
        for gone in [worker for worker in self.workers if not worker.is_alive]:
            gone.disconnect()
            self.workers.remove(gone)
        usable = self.workers[:count]
        least = min(usable, key=lambda worker: worker.sessions, default=None)
        if least is None or (least.sessions and len(usable) < count):
            least = Worker()
            self.workers.append(least)
        return least

    def release(self, worker: Worker) -> None:
        """A session of the worker has ended."""
        with self._lock:
            worker.sessions -= 1

    def close(self) -> None:
        """End all workers."""
        if self.pid != os.getpid():
            return  # a process that this one forked exits
        for worker in self.workers:
            worker.disconnect()
        for worker in self.workers:
            worker.wait()

    def forget(self) -> None:
        """After a fork: the workers belong to the parent."""
        for worker in self.workers:
            worker.disconnect()


_pool: WorkerPool | None = None
_pool_lock = threading.Lock()


def get_pool() -> WorkerPool:
    """The workers of this process."""
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = WorkerPool()
        return _pool


def forget_pool() -> None:
    """In a process that was forked from this one. Another thread may have held the lock."""
    global _pool, _pool_lock
    _pool_lock = threading.Lock()
    if _pool is not None:
        _pool.forget()
        _pool = None


if not ON_WINDOWS:
    os.register_at_fork(after_in_child=forget_pool)


class WorkerWire(SessionWire):
    """A `Wire` to a session in a worker process."""

    def __init__(
        self, count: int, launch: SessionLaunch, on_stderr: Callable[[str], None], cleanup: Callable[[], None]
    ) -> None:
        super().__init__(launch.argv, on_stderr, cleanup)
        self._count = count
        self._launch = launch
        self._worker: Worker | None = None

    @property
    def pid(self) -> int | None:
        return None if self._worker is None else self._worker.child.pid

    def connect(self) -> socket.socket:
        if ON_WINDOWS:
            raise CLIConnectionError("workers are not available on Windows, because sockets cannot be passed there")
        self._pool = get_pool()
        self._worker, connection = self._pool.connect(self._count)
        return connection

    async def open(self) -> None:
        await super().open()
        self._write(FrameKind.LAUNCH, self._launch.encode())

    def explain_loss(self) -> str:
        gone = self._worker is not None and not self._worker.is_alive
        return describe_death(self._worker.child) if self._worker is not None and gone else ""

    async def find_exit_code(self) -> int:
        from anyio import move_on_after

        assert self._worker is not None
        child = self._worker.child
        with move_on_after(STOP_SECONDS):
            await wait_exited(child)
        self._stderr += describe_death(child)
        return child.returncode or 1

    def release(self) -> None:
        if self._worker is not None:
            self._pool.release(self._worker)


def describe_death(child: subprocess.Popen[bytes]) -> str:
    if child.returncode is None:
        how = "closed the connection to this session"
    elif child.returncode < 0:
        with suppress(ValueError):
            return f"the worker process {child.pid} was killed by {signal.Signals(-child.returncode).name}"
        how = f"was killed by signal {-child.returncode}"
    else:
        how = f"exited with code {child.returncode}"
    return f"the worker process {child.pid} {how}"
