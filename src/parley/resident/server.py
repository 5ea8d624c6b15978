"""Accept launchers and fork a process for each session.

    launch = Server(folder, name, lock).serve(idle_seconds)      in a forked process: the session to run
                                                                 in the server: None, at its end

The server never sees arguments, environments or streams: it forks first, and the forked process talks to the launcher.
It keeps the connection only to report how the process ended. It has no threads and no event loop, and waits for
signals: from its listening socket, from the processes that end, and to stop.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import NoReturn

import parley.entry_points as entry_points
from parley._launched import set_launcher
from parley.compose.preload import warm_up
from parley.resident.adoption import (
    Launch,
    adopt_launch,
    adopt_signals,
    adopt_traits,
    find_difference,
    is_peer_alive,
    read_status,
    receive_launch,
)
from parley.resident.protocol import (
    CODE,
    DESCRIPTORS,
    GO,
    MAX_BYTES,
    READY,
    REFUSED,
    SESSION_WAIT_SECONDS,
    START,
    STATUS,
    WAITING,
    peer_of,
    socket_path,
    unpack_integers,
)

STOPPING = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
WAITED = STOPPING | {signal.SIGCHLD, signal.SIGIO}
PERMIT = b"+"
NOT_STARTED = 0
"""The exit code of a forked process that runs no session."""


class ResidentServer:
    """Listens in an open folder. `lock` is the descriptor of the lock that only one server with this name has."""

    def __init__(self, folder: int, name: str, lock: int) -> None:
        self._folder, self._name, self._lock = folder, name, lock
        self._listener: socket.socket | None = None
        self._connections: dict[int, socket.socket] = {}
        """Of the running processes, by pid."""
        self._forked = 0
        self._code = CodeFiles()

    def serve(self, idle_seconds: float) -> tuple[Launch, socket.socket] | None:
        """Raises OSError if it cannot listen."""
        signal.pthread_sigmask(signal.SIG_BLOCK, WAITED)
        for number in WAITED:
            signal.signal(number, signal.SIG_DFL)  # an ignored SIGCHLD would lose the exit codes
        self._listen()
        while self._listener is not None or self._connections:
            self._reap()
            while (connection := self._accept()) is not None:
                checked, permit = os.pipe()
                try:
                    pid = os.fork()
                except OSError:  # no memory or too many processes
                    connection.close()
                    os.close(checked)
                    os.close(permit)
                    continue
                if pid == 0:
                    os.close(permit)
                    return self._become_session(connection, checked)
                self._forked += 1
                self._connections[pid] = connection
                # While the forked process compares itself with the launcher. Without a permit, it ends.
                os.close(checked)
                if self._code.is_current():
                    with suppress(BrokenPipeError):  # the forked process refused and has ended
                        os.write(permit, PERMIT)
                else:
                    connection.close()
                    self._close()
                os.close(permit)
            if self._connections:
                woken_by: int = signal.sigwaitinfo(WAITED).si_signo
            else:
                received = signal.sigtimedwait(WAITED, idle_seconds if self._listener is not None else 0)
                woken_by = signal.SIGTERM if received is None else received.si_signo
            if woken_by in STOPPING:
                self._close()
        return None

    def _listen(self) -> None:
        path = socket_path(self._folder, self._name)
        with suppress(FileNotFoundError):  # we have the lock, so its server is gone
            os.unlink(path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        os.chmod(path, 0o600)
        self._listener.setblocking(False)
        descriptor = self._listener.fileno()
        fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)
        self._listener.listen(128)

    def _accept(self) -> socket.socket | None:
        if self._listener is None:
            return None
        try:
            connection = self._listener.accept()[0]
        except OSError:  # no launcher waits, or the one that waited has ended
            return None
        return connection

    def _reap(self) -> None:
        """Report how processes ended to their launchers."""
        while self._connections:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            connection = self._connections.pop(pid)
            with suppress(OSError), connection:
                connection.setblocking(False)
                connection.send(b"%b %d\n" % (STATUS, status))

    def _close(self) -> None:
        """Accept no more launchers. Another server may start; this one ends after its last session."""
        if self._listener is None:
            return
        with suppress(OSError):
            os.unlink(socket_path(self._folder, self._name))
        self._listener.close()
        self._listener = None
        os.close(self._lock)

    def _become_session(self, connection: socket.socket, checked: int) -> tuple[Launch, socket.socket]:
        """In the forked process: release what is the server's, and return the launcher's session."""
        assert self._listener is not None
        self._listener.close()
        os.close(self._lock)
        os.close(self._folder)
        for other in self._connections.values():
            other.close()
        return accept_launch(connection, self._forked, checked), connection


class CodeFiles:
    """The files of the loaded modules, and the folders that packages are installed in.

    A server whose code has changed ends itself. A folder changes when a package is installed, which may extend Parley.
    """

    def __init__(self) -> None:
        files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        folders = [folder for folder in sys.path if os.path.isdir(folder) and has_packages(folder)]
        self._paths = "\0".join(sorted({*folders, *(path for path in files if path)}))
        self._stamp = self._read()

    def is_current(self) -> bool:
        return self._read() == self._stamp

    def _read(self) -> int | None:
        """A hash of sizes and times; None if a file is gone."""
        try:
            return hash(tuple((found.st_mtime_ns, found.st_size) for found in map(os.stat, self._paths.split("\0"))))
        except OSError:
            return None


def has_packages(folder: str) -> bool:
    is_usual = os.path.basename(folder) in ("site-packages", "dist-packages")
    return is_usual or any(name.endswith(entry_points.SUFFIX) for name in os.listdir(folder))


def accept_launch(connection: socket.socket, served: int, checked: int) -> Launch:
    """Take over what a launcher hands over. Exits if it must start cold.

    `checked` is a pipe on which the server permits it: the code is current.
    """
    try:
        connection.settimeout(SESSION_WAIT_SECONDS)
        pid, uid = peer_of(connection)
        if uid != os.geteuid():
            refuse(connection, "the server belongs to another user")
        try:
            status = read_status(pid)
            if difference := find_difference(pid, status):
                refuse(connection, difference)
            adopt_traits(pid, status)
            if not is_peer_alive(connection) or os.read(checked, len(PERMIT)) != PERMIT:
                os._exit(NOT_STARTED)
            os.close(checked)
        except (OSError, ValueError, KeyError) as exc:
            refuse(connection, f"{type(exc).__name__}: {exc}")
        connection.send(b"%b %d %d\n" % (READY, os.getpid(), served))
        space = socket.CMSG_SPACE(DESCRIPTORS * 4)
        line, ancillary, _, _ = connection.recvmsg(MAX_BYTES, space, socket.MSG_CMSG_CLOEXEC)
        if line != START or not ancillary:
            os._exit(NOT_STARTED)
        launch = receive_launch(unpack_integers(ancillary[0][2]))
        adopt_signals(status)
        adopt_launch(launch)
        set_launcher(pid, int(status["PPid"]))
        connection.settimeout(None)  # the launcher lets us go, or ends, and the connection with it
        connection.send(WAITING)
        warm_up()  # the pages that a session writes are copied now, while the launcher becomes a shell
        if connection.recv(MAX_BYTES) != GO:
            os._exit(NOT_STARTED)
    except Exception:  # whatever it is, the launcher is gone or starts cold
        os._exit(NOT_STARTED)
    return launch


def refuse(connection: socket.socket, reason: str) -> NoReturn:
    connection.send(b"%b %b\n" % (REFUSED, reason.encode(errors="replace")))
    os._exit(NOT_STARTED)


def report_code(connection: socket.socket, code: int) -> None:
    """Tell the launcher the exit code, in case that the server was killed and cannot."""
    with suppress(OSError):
        connection.setblocking(False)
        connection.send(b"%b %d\n" % (CODE, code))
