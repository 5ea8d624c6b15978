"""Hand this process's session over to a resident engine, then wait for its end.

`launch()` returns if the session must be started in this process: there is no server, it refuses, it does not answer
in time, or anything else goes wrong before the session starts. Otherwise it does not return: it forwards signals to
the session and exits as the session does.

While it waits, a Python process needs 4 MB. Where `/bin/sh` is dash, which needs 0.2 MB, the process becomes one
(`waiter.sh`); elsewhere `wait_for_end` does the same in Python. Every import here costs each session time and memory,
so this module uses the C modules below `signal` and `socket`.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the typeshed has no stub of it
import marshal
import os
import sys

from parley.resident.protocol import (
    CODE,
    GO,
    MAX_BYTES,
    READY,
    START,
    STATUS,
    WAITING,
    open_folder,
    pack_descriptors,
    peer_of,
    server_environment,
    server_name,
    socket_path,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable
    from typing import NoReturn

ANSWER_SECONDS = 1.0
"""How long to wait for each answer. A stopped server delays a session by this time."""
LOCK_DESCRIPTOR = 3
"""Where a new server finds its lock."""
SHELL = "/bin/sh"
WAITER = os.path.join(os.path.dirname(__file__), "waiter.sh")
WAITER_CONNECTION = 3
NOT_FORWARDED = {
    _signal.SIGKILL, _signal.SIGSTOP, _signal.SIGCHLD, _signal.SIGIO,
    _signal.SIGSEGV, _signal.SIGBUS, _signal.SIGFPE, _signal.SIGILL, _signal.SIGTRAP, _signal.SIGSYS,
}  # fmt: skip
WAITED = _signal.valid_signals() - NOT_FORWARDED | {_signal.SIGIO}
STOPS = {_signal.SIGTSTP, _signal.SIGTTIN, _signal.SIGTTOU}


def launch(words: list[str], erase_secrets: Callable[[], None]) -> None:
    """Run a session with these arguments in a resident engine. Returns if it must be started in this process.

    `erase_secrets` is called before the session can run a command, unless this process becomes a shell.
    """
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # Python's handler would print a traceback
    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
    opened: list[int] = []
    try:
        handed = hand_over(words, opened, mask, erase_secrets)
    except Exception:  # a cold start needs nothing of this
        handed = None
    if handed is not None:
        wait_for_end(*handed)
    for descriptor in opened:
        os.close(descriptor)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)


def hand_over(
    words: list[str], opened: list[int], mask: set[int], erase_secrets: Callable[[], None]
) -> tuple[socket, int] | None:
    """Return the connection and a pidfd of the session; None if there is no server. Raises OSError and others.

    `opened` gets the descriptors to close before a cold start. One of them must stay open while the session runs.
    `mask`: the blocked signals of this process.
    """
    script = find_script()
    if script is None or not can_hand_over(words):
        return None
    opened.append(open_folder())
    name = server_name(script)
    connection = connect(opened[0], name)
    if connection is None:
        start_server(opened[0], name, script)
        return None
    try:
        return connection, start_session(connection, words, opened, mask, erase_secrets)
    except BaseException:
        connection.close()
        raise


def start_session(
    connection: socket, words: list[str], opened: list[int], mask: set[int], erase_secrets: Callable[[], None]
) -> int:
    """Let a forked process run the session; returns a pidfd of it. Does not return if this process becomes a shell."""
    # All of this while the server forks and the forked process compares itself with this one.
    started = os.memfd_create("parley-session", os.MFD_CLOEXEC)
    opened.append(started)
    os.write(started, marshal.dumps((sys.argv[0], words, dict(os.environb))))
    directory = os.open(".", os.O_PATH | os.O_CLOEXEC)
    opened.append(directory)
    watched, held = os.pipe()
    opened += watched, held
    waiter = read_waiter() if is_dash() else None
    kind, *numbers = connection.recv(MAX_BYTES).split()
    if kind != READY:
        raise ConnectionRefusedError
    pid = int(numbers[0])
    session = os.pidfd_open(pid)
    opened.append(session)
    _signal.pthread_sigmask(_signal.SIG_BLOCK, WAITED)  # from here on, signals wait until they can be forwarded
    try:
        send_descriptors(connection, [0, 1, 2, directory, watched, started])
        if connection.recv(MAX_BYTES) != WAITING:
            raise ConnectionAbortedError
        if waiter is not None:
            become_waiter(waiter, connection, held, pid, mask)
        erase_secrets()
        connection.send(GO)
    except BaseException:
        _signal.pidfd_send_signal(session, _signal.SIGKILL)  # it has not touched the streams, and must not hold them
        raise
    for descriptor in (started, directory, watched):
        os.close(descriptor)
    return session


def is_dash() -> bool:
    return os.path.basename(os.path.realpath(SHELL)) == "dash"


def read_waiter() -> bytes:
    """The script of a shell that lets the session go and waits for it. Raises OSError."""
    file = os.open(WAITER, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 1 << 16)
    finally:
        os.close(file)


def become_waiter(waiter: bytes, connection: socket, held: int, session_pid: int, mask: set[int]) -> NoReturn:
    """Replace this process by a shell that runs the script. Raises OSError.

    The shell has no arguments and no environment of the session, so none of its secrets.
    """
    connection.setblocking(True)
    os.dup2(connection.fileno(), WAITER_CONNECTION)
    os.set_inheritable(held, True)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)  # a signal that arrives now ends the session before it starts
    os.execve(SHELL, ("parley", "-c", waiter, "parley", str(session_pid)), {})


def find_script() -> str | None:
    """The path of our executable; None after `python -m parley` or with options of Python, which a server lacks."""
    return os.path.abspath(sys.argv[0]) if len(sys.orig_argv) == len(sys.argv) + 1 else None


def can_hand_over(words: list[str]) -> bool:
    """Whether the session needs nothing but the standard streams, and no terminal. Raises OSError if one is closed.

    This process keeps other descriptors open, but only a session in it could read them as files.
    """
    for descriptor in (0, 1, 2):
        os.fstat(descriptor)
    return not (os.isatty(0) or os.isatty(1) or any("/fd/" in word for word in words))


def connect(folder: int, name: str) -> socket | None:
    """None if nothing listens. Raises OSError; PermissionError if the server is not of this user."""
    import _socket

    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.settimeout(ANSWER_SECONDS)
    try:
        connection.connect(socket_path(folder, name))
        if peer_of(connection)[1] != os.geteuid():
            raise PermissionError
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except BaseException:
        connection.close()
        raise
    return connection


def send_descriptors(connection: socket, descriptors: list[int]) -> None:
    import _socket

    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, pack_descriptors(descriptors))
    connection.sendmsg([START], [rights])


def start_server(folder: int, name: str, script: str) -> bool:
    """Start a server in the background, for the next sessions; False if there is one. Raises OSError.

    The new server inherits the lock, so of many launchers that find no server, one starts it.
    """
    from parley.workspace import private_files

    lock = private_files.open_in(folder, os.getuid(), f"{name}.lock", os.O_RDWR | os.O_CREAT)
    if not private_files.lock(lock, timeout_seconds=0):
        os.close(lock)
        return False
    command = [sys.executable, script, "resident", "serve", os.readlink(f"/proc/self/fd/{folder}"), name]
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            if os.fork() == 0:  # so that the server is not our child
                null = os.open(os.devnull, os.O_RDWR)
                for descriptor in (0, 1, 2):
                    os.dup2(null, descriptor)
                os.dup2(lock, LOCK_DESCRIPTOR)
                os.set_inheritable(LOCK_DESCRIPTOR, True)  # if it had this number already
                os.closerange(LOCK_DESCRIPTOR + 1, os.sysconf("SC_OPEN_MAX"))
                os.chdir("/")
                os.execve(sys.executable, command, server_environment())
        finally:
            os._exit(0)
    os.close(lock)
    os.waitpid(child, 0)
    return True


def wait_for_end(connection: socket, session: int) -> NoReturn:
    """Forward signals to the session until it has ended, and exit as it did.

    All signals are blocked, and waited for. The connection sends one, too, when it has data.
    """
    import fcntl

    connection.setblocking(False)
    fcntl.fcntl(connection.fileno(), fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(connection.fileno(), fcntl.F_GETFL)
    fcntl.fcntl(connection.fileno(), fcntl.F_SETFL, flags | os.O_ASYNC)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in (0, 1, 2):  # they are the session's now
        os.dup2(null, descriptor)
    code = None
    while True:
        while (data := receive(connection)) is not None:
            for kind, number in (line.split() for line in data.splitlines()):
                if kind == STATUS:
                    exit_like(int(number))
                if kind == CODE:
                    code = int(number)
            if not data:  # the server was killed, so how the session ended is unknown
                exit_like(_signal.SIGKILL if code is None else code << 8)
        received = _signal.sigwaitinfo(WAITED).si_signo
        if received == _signal.SIGIO:
            continue
        try:
            if received in STOPS:
                _signal.pidfd_send_signal(session, _signal.SIGSTOP)
                os.kill(os.getpid(), _signal.SIGSTOP)
                received = _signal.SIGCONT
            _signal.pidfd_send_signal(session, received)
        except ProcessLookupError:  # it has just ended
            pass


def receive(connection: socket) -> bytes | None:
    """The next lines; empty at the end, None if there is none yet."""
    try:
        return connection.recv(MAX_BYTES)
    except BlockingIOError:
        return None
    except ConnectionError:
        return b""


def exit_like(status: int) -> NoReturn:
    """End this process as `waitpid` reported it of the session."""
    number = status & 0x7F
    if number:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the session has written the core file, if any
        if number != _signal.SIGKILL:
            _signal.signal(number, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(status >> 8)
