"""`parley resident`: start, show and stop the servers that run sessions of clients with PARLEY_RESIDENT=1.

`parley resident serve FOLDER NAME` is the server itself. It is not listed, because launchers start it with a lock.

See also: `resident/` for how it works.
"""

from __future__ import annotations

import gc
import os
import sys

import parley.entry_points as entry_points
from parley.cli import main as executable
from parley.cli.commands.subcommand import Subcommand, write_lines
from parley.compose.preload import preload
from parley.errors import UsageError
from parley.resident.control import FoundServer, find_servers, start, stop
from parley.resident.launcher import LOCK_DESCRIPTOR
from parley.resident.protocol import IDLE_VARIABLE
from parley.resident.server import ResidentServer, report_code

IDLE_SECONDS = 600.0
MAX_IDLE_SECONDS = 30 * 24 * 3600


class ResidentCommand(Subcommand):
    def run(self) -> int:
        if sys.platform != "linux":
            raise UsageError("`parley resident` works only on Linux")
        try:
            return super().run()
        except OSError as exc:
            raise UsageError(f"cannot {self.given.action} a resident engine: {exc}") from None

    def start(self) -> int:
        read_idle_seconds()
        return write_lines(["started" if start() else "already running"])

    def status(self) -> int:
        servers = list_servers()
        rows = [{"pid": one.pid, "name": one.name, "served": one.served, "refusal": one.refusal} for one in servers]
        lines = [f"{describe(server)} (connections so far: {server.served})" for server in servers]
        return self.write({"servers": rows}, lines or ["no resident engine is running"])

    def stop(self) -> int:
        servers = list_servers()
        for server in servers:
            stop(server)
        lines = [f"stopped {server.name} (process {server.pid})" for server in servers]
        return write_lines(lines or ["no resident engine is running"])


def list_servers() -> list[FoundServer]:
    """Raises UsageError."""
    try:
        return list(find_servers())
    except OSError as exc:
        raise UsageError(f"cannot search for resident engines: {exc}") from None


def describe(server: FoundServer) -> str:
    if server.refusal:
        state = f"refuses sessions that are started from here: {server.refusal}"
    elif server.is_ours:
        state = "runs sessions that are started from here"
    else:
        state = "belongs to another version, installation or environment"
    return f"{server.name} (process {server.pid}): {state}"


def read_idle_seconds() -> float:
    """How long a server without sessions stays. Raises UsageError."""
    text = os.environ.get(IDLE_VARIABLE, "")
    try:
        seconds = float(text) if text else IDLE_SECONDS
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= MAX_IDLE_SECONDS:
        raise UsageError(
            f"{IDLE_VARIABLE} is {text!r:.100}; it must be a number of seconds from 0 to {MAX_IDLE_SECONDS}"
        )
    return seconds


def serve(folder_path: str, name: str) -> int:
    """Run the server; in a process that it forks, a session. Raises UsageError."""
    import parley.cli.handshake
    import parley.cli.run  # noqa: F401  # a session needs both

    idle_seconds = read_idle_seconds()
    try:
        folder = os.open(folder_path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.set_inheritable(LOCK_DESCRIPTOR, False)
    except OSError as exc:
        raise UsageError(
            f"`parley resident serve` must not be run by hand; use `parley resident start` ({exc})"
        ) from None
    preload()
    if entry_points.has_extensions():
        entry_points.has_extensions.cache_clear()  # which of them count depends on the working directory of a session
    gc.freeze()  # a collection in a forked process would copy all of it
    found = ResidentServer(folder, name, LOCK_DESCRIPTOR).serve(idle_seconds)
    if found is None:
        return 0
    launch, connection = found
    return executable.leave(executable.main(launch.words), lambda code: report_code(connection, code))
