"""The executable without its start-up: a server that has loaded it forks one process for each run.

    done = run_parley(["--version"], cwd=tmp_path, env=environment)

Starting Python and loading the modules takes most of the time of a short run. What is run is the executable's own
`main`, in a process of its own with its own streams, folder and environment. What a start itself does (the command line
of the process, variables that Python reads, the modules that are loaded) needs the real executable.
"""

from __future__ import annotations

import array
import asyncio
import atexit
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from tests.helpers.patience import PATIENCE_SECONDS

PARLEY = str(Path(sys.executable).with_name("parley"))
INTEGER = struct.Struct("i")
MAX_BYTES = 1 << 20
START_VARIABLE = "PARLEY_TESTS_START"
"""Set by programs that run tests of the executable with its start."""
SERVERS = ("parley.gateway.http.app", "parley.cluster.host", "parley.cluster.gateway.app")
"""What `parley serve` and `parley host` load when they start."""


class ForkedRun(msgspec.Struct):
    """What a forked process is to run."""

    argv: list[str]
    cwd: str
    env: dict[str, str]


class ForkedProcess:
    """A process that the server has forked. It is not a child of the tests, so its exit code is read from a pipe."""

    def __init__(self, status: int) -> None:
        self._status = status
        self.returncode: int | None = None
        self.pid: int = INTEGER.unpack(os.read(status, INTEGER.size))[0]

    def fileno(self) -> int:
        """Can be read when the process has ended."""
        return self._status

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = int(INTEGER.unpack(os.read(self._status, INTEGER.size))[0])
            os.close(self._status)
        return self.returncode


class ForkedPipes:
    """A forked process with streams, as `asyncio.subprocess.Process` has them."""

    stdin: asyncio.StreamWriter | None = None
    stdout: asyncio.StreamReader | None = None
    stderr: asyncio.StreamReader | None = None

    def __init__(self, process: ForkedProcess) -> None:
        self._process = process
        self.pid = process.pid
        self._ended = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(process.fileno(), self._end)

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.fileno())
        self._ended.set_result(self._process.wait())

    async def wait(self) -> int:
        return int(await asyncio.shield(self._ended))

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    @classmethod
    async def start(
        cls, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path | str = ".", stderr: int | None = None
    ) -> ForkedPipes:
        """Start the executable. `stderr` is a descriptor; without it, stderr can be read, too."""
        (read, feed), (out, stdout) = os.pipe(), os.pipe()
        errors, written = (None, stderr) if stderr is not None else os.pipe()
        started = cls(shared.start(argv, (read, stdout, written), cwd=Path(cwd).absolute(), env=env))
        for descriptor in (read, stdout, *([] if errors is None else [written])):
            os.close(descriptor)
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(feed, "wb"))
        started.stdin = asyncio.StreamWriter(transport, protocol, None, loop)
        started.stdout = await open_reader(out)
        started.stderr = None if errors is None else await open_reader(errors)
        return started


async def open_reader(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb"))
    return reader


class ForkServer:
    """Started at the first run. It ends with the process of the tests, which holds the other end of its socket."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def start(
        self, argv: Sequence[str], streams: tuple[int, int, int], *, cwd: Path | str, env: Mapping[str, str]
    ) -> ForkedProcess:
        if self._socket is None:
            self._socket = self._start_server()
        status, reported = os.pipe()
        run = ForkedRun(argv=list(argv), cwd=str(cwd), env=dict(env))
        descriptors = array.array("i", [*streams, reported])
        self._socket.sendmsg(
            [msgspec.json.encode(run)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors.tobytes())]
        )
        os.close(reported)
        return ForkedProcess(status)

    def _start_server(self) -> socket.socket:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for each in (ours, its):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_BYTES)
        root = Path(__file__).parents[2]
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.helpers.forked", str(its.fileno())], cwd=root, pass_fds=[its.fileno()]
        )
        its.close()

        def stop() -> None:
            ours.close()
            try:
                server.wait(PATIENCE_SECONDS)
            finally:
                server.kill()

        atexit.register(stop)
        return ours


shared = ForkServer()


def needs_start(env: Mapping[str, str]) -> bool:
    """Whether other code than that of the tests runs, or the start itself is tested (`tests/stress/resident`)."""
    return "PYTHONPATH" in env or START_VARIABLE in os.environ


async def start_parley(argv: Sequence[str], *, env: Mapping[str, str]) -> ForkedPipes | Process:
    """Start a server: in a forked process if possible."""
    if needs_start(env):
        return await asyncio.create_subprocess_exec(PARLEY, *argv, env=env, stderr=asyncio.subprocess.PIPE)
    return await ForkedPipes.start(argv, env=env)


def run_parley(
    argv: Sequence[str], *, cwd: Path | str, env: Mapping[str, str], stdin: str | bytes = b""
) -> subprocess.CompletedProcess[str]:
    """Run the executable, as `subprocess.run` does; variables that Python reads make it start the real one."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    if any(name.startswith("PYTHON") for name in env) or needs_start(env):
        done = subprocess.run(
            [PARLEY, *argv], input=data, cwd=cwd, env=env, capture_output=True, timeout=PATIENCE_SECONDS, check=False
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
    pipes = [os.pipe() for _ in range(3)]
    (read, feed), (out, stdout), (err, stderr) = pipes
    process = shared.start(argv, (read, stdout, stderr), cwd=cwd, env=env)
    for descriptor in (read, stdout, stderr):
        os.close(descriptor)
    written = [each.decode() for each in communicate(process, feed, data, (out, err))]
    return subprocess.CompletedProcess([PARLEY, *argv], process.wait(), *written)


def communicate(process: ForkedProcess, feed: int, data: bytes, outputs: tuple[int, int]) -> tuple[bytes, bytes]:
    """Write the input and read both outputs to their ends. Raises TimeoutExpired, after the process was killed."""
    found: dict[int, bytearray] = {descriptor: bytearray() for descriptor in outputs}
    left = memoryview(data)
    os.set_blocking(feed, False)
    until = time.monotonic() + PATIENCE_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(feed, selectors.EVENT_WRITE)
        for descriptor in outputs:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select(max(until - time.monotonic(), 0)):
                descriptor = key.fd
                if descriptor == feed:
                    try:
                        left = left[os.write(feed, left) :] if left else left
                    except BrokenPipeError:
                        left = left[:0]
                    is_finished = not left
                else:
                    part = os.read(descriptor, 1 << 16)
                    found[descriptor] += part
                    is_finished = not part
                if is_finished:
                    selector.unregister(descriptor)
                    os.close(descriptor)
            if time.monotonic() > until:
                os.kill(process.pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired("parley", PATIENCE_SECONDS, *map(bytes, found.values()))
    out, err = found.values()
    return bytes(out), bytes(err)


def serve(connection: socket.socket) -> None:
    """Fork a process for each message, and report its pid and its exit code."""
    from importlib import import_module

    import parley.cli.handshake
    import parley.cli.run  # noqa: F401  # a session needs both
    from parley.cli.commands.catalog import COMMANDS
    from parley.cli.commands.subcommand import find_handler
    from parley.compose.preload import preload

    for command in COMMANDS.values():
        for action in command.actions.values():
            find_handler(action)
    for module in SERVERS:
        import_module(module)
    preload()
    reports: dict[int, int] = {}
    wake, woken = socket.socketpair()
    woken.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken.fileno())
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        selector.register(wake, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if wake in ready:
                wake.recv(4096)
                report_ended(reports)
            if connection not in ready:
                continue
            data, descriptors, *_ = socket.recv_fds(connection, MAX_BYTES, 4)
            if not data:
                return
            *streams, report = descriptors
            if (pid := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                for each in (*reports.values(), report, connection.detach(), wake.detach(), woken.detach()):
                    os.close(each)
                selector.close()
                run_forked(msgspec.json.decode(data, type=ForkedRun), streams)
            for each in streams:
                os.close(each)
            os.write(report, INTEGER.pack(pid))
            reports[pid] = report


def report_ended(reports: dict[int, int]) -> None:
    while reports:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        report = reports.pop(pid)
        os.write(report, INTEGER.pack(os.waitstatus_to_exitcode(status)))
        os.close(report)


def run_forked(run: ForkedRun, streams: list[int]) -> NoReturn:
    import random

    from parley.cli import main as executable

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    random.seed()
    sys.argv[:] = [PARLEY, *run.argv]
    try:
        os.chdir(run.cwd)
        os.environ.clear()
        os.environ.update(run.env)
        time.tzset()
        executable.run()
    except SystemExit as exc:
        executable.leave(exc.code if isinstance(exc.code, int) else 1)
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main(argv: list[str]) -> Any:
    serve(socket.socket(fileno=int(argv[0])))


if __name__ == "__main__":
    main(sys.argv[1:])
