"""Start, find and stop resident servers, for `parley resident` and `parley doctor`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from parley.resident.launcher import connect, find_script, start_server
from parley.resident.protocol import MAX_BYTES, READY, open_folder, peer_of, server_name
from parley.workspace import private_files

START_SECONDS = 20.0
STOP_SECONDS = 5.0
PAUSE_SECONDS = 0.01


@dataclass(frozen=True)
class FoundServer:
    """A server of this user, as it answers this process."""

    name: str
    pid: int
    served: int
    """How many launchers it has accepted; 0 if unknown."""
    refusal: str
    """Why it refuses a session that is started as this process was; empty if it accepts."""
    is_ours: bool
    """Whether launchers of this installation and environment use it."""


def find_servers() -> Iterator[FoundServer]:
    """Raises OSError if the folder cannot be used."""
    script = find_script()
    ours = server_name(script) if script is not None else ""
    folder = open_folder()
    try:
        names = sorted(name.removesuffix(".sock") for name in os.listdir(folder) if name.endswith(".sock"))
        for name in names:
            try:
                connection = connect(folder, name)
            except OSError:
                continue
            if connection is None:
                continue  # left by a server that was killed; the next one removes it
            with closing(connection):
                pid = peer_of(connection)[0]
                try:
                    kind, _, rest = connection.recv(MAX_BYTES).split(b"\n")[0].partition(b" ")
                except OSError:
                    kind, rest = b"", b"no answer; the server is busy or stopped"
            is_ready = kind == READY
            refusal = "" if is_ready else rest.decode(errors="replace") or "the server is ending"
            yield FoundServer(name, pid, int(rest.split()[1]) if is_ready else 0, refusal, name == ours)
    finally:
        os.close(folder)


def start() -> bool:
    """Start the server of this installation; False if it is running. Raises OSError, or TimeoutError."""
    script = find_script()
    if script is None:
        raise OSError("run the installed `parley` executable, not `python -m parley` or Python with options")
    folder, name = open_folder(), server_name(script)

    def is_listening() -> bool:
        connection = connect(folder, name)
        if connection is None:
            return False
        connection.close()
        return True

    try:
        if is_listening():
            return False
        started = start_server(folder, name, script)
        wait_until(is_listening, START_SECONDS, "the server did not start to listen")
        return started
    finally:
        os.close(folder)


def stop(server: FoundServer) -> None:
    """Let a server accept no more sessions; it ends after its last one. Raises OSError, or TimeoutError."""
    folder = open_folder()
    try:
        lock = private_files.open_in(folder, os.getuid(), f"{server.name}.lock", os.O_RDWR)
    finally:
        os.close(folder)
    try:
        os.kill(server.pid, signal.SIGTERM)
        if not private_files.lock(lock, timeout_seconds=STOP_SECONDS):
            raise TimeoutError(f"process {server.pid} does not stop; is it suspended? (waited {STOP_SECONDS:.0f} s)")
    except ProcessLookupError:
        return
    finally:
        os.close(lock)


def wait_until(is_done: Callable[[], bool], seconds: float, problem: str) -> None:
    """Raises TimeoutError."""
    end = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > end:
            raise TimeoutError(f"{problem} (waited {seconds:.0f} s)")
        time.sleep(PAUSE_SECONDS)
