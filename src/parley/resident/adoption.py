"""How a forked process comes to act for a launcher: it must be confined in the same way, and becomes like it.

A session inherits what confines the server, not what confines its launcher. So the forked process reads everything that
/proc shows of both, and refuses at the first difference (`find_difference`); the launcher then starts cold. Nothing
that the launcher says of itself is believed: a process in a sandbox must not escape from it through the server.

/proc shows how many seccomp filters a process has, but not which, and nothing of Landlock. Both need privileges or
`no_new_privs`. So a launcher that has filters or `no_new_privs` is refused unless process 1 has the same.

`adopt_traits` takes over what the kernel knows of the launcher: limits, nice value, CPUs, umask. `adopt_signals` does
the same for signals. `receive_launch` and `adopt_launch` take over what the launcher has sent: descriptors, words and
environment.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # as `signal`, but without enumerations, which take most of the time
import errno
import fcntl
import marshal
import os
import resource
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass

STATUS_FIELDS = (
    "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp",
    "Seccomp_filters", "Speculation_Store_Bypass", "SpeculationIndirectBranch", "Mems_allowed",
)  # fmt: skip
INHERITED_FIELDS = ("NoNewPrivs", "Seccomp", "Seccomp_filters")
FILES = ("cgroup", "cpuset", "attr/current", "attr/exec", "loginuid", "sessionid", "personality", "coredump_filter")
INIT = 1
READ_BYTES = 1 << 16
SO_PEERPIDFD = 77
LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]


def find_difference(pid: int, theirs: dict[str, str]) -> str:
    """What differs between this process and a launcher; empty if nothing does. Raises OSError if it cannot be read.

    `theirs` is the launcher's /proc/PID/status.
    """
    ours = read_status(os.getpid())
    for field in STATUS_FIELDS:
        if ours.get(field) != theirs.get(field):
            return f"{field} differs from the server's"
    if any(theirs.get(field, "0") != "0" for field in INHERITED_FIELDS):
        init = read_status(INIT)
        for field in INHERITED_FIELDS:
            if theirs.get(field) != init.get(field):
                return f"{field} differs from that of process 1"
    for space in os.listdir("/proc/self/ns"):
        if os.readlink(f"/proc/self/ns/{space}") != os.readlink(f"/proc/{pid}/ns/{space}"):
            return f"namespace {space} differs from the server's"
    root, their_root = os.stat("/proc/self/root"), os.stat(f"/proc/{pid}/root")
    if (root.st_dev, root.st_ino) != (their_root.st_dev, their_root.st_ino):
        return "root directory differs from the server's"
    for name in FILES:
        if read_bytes(f"/proc/self/{name}") != read_bytes(f"/proc/{pid}/{name}"):
            return f"{name} differs from the server's"
    if scheduling(0) != scheduling(pid):
        return "scheduling policy differs from the server's"
    return ""


def is_peer_alive(connection: socket.socket) -> bool:
    """Whether the process that connected still runs. If it does, its pid has not been given to another process.

    Linux 6.5 or later; on others, the pid is trusted.
    """
    try:
        peer = connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as exc:
        return exc.errno == errno.ENOPROTOOPT  # otherwise the process is gone
    try:
        poll = select.poll()
        poll.register(peer, select.POLLIN)
        return not poll.poll(0)
    finally:
        os.close(peer)


def read_status(pid: int) -> dict[str, str]:
    """The fields of /proc/PID/status. Raises OSError."""
    text = read_proc(f"/proc/{pid}/status").decode("utf-8", "surrogateescape")
    fields = (line.partition(":") for line in text.split("\n"))
    return {name: value.strip() for name, _, value in fields}


def read_bytes(path: str) -> bytes | int | None:
    """The content of a file of /proc, or why it cannot be read: what this kernel does not have is equal for all."""
    try:
        return read_proc(path)
    except OSError as exc:
        return exc.errno


def read_proc(path: str) -> bytes:
    """The content of a file of /proc, with a third of the system calls of `open`. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while part := os.read(descriptor, READ_BYTES):
            content += part
        return content
    finally:
        os.close(descriptor)


def scheduling(pid: int) -> tuple[int, int]:
    return os.sched_getscheduler(pid), os.sched_getparam(pid).sched_priority


@dataclass(frozen=True)
class Launch:
    """What the client has started."""

    script: str
    words: list[str]
    environment: dict[bytes, bytes]


def adopt_traits(pid: int, status: dict[str, str]) -> None:
    """`status` is the launcher's /proc/PID/status. Raises OSError or ValueError if something is not permitted.

    The process becomes the leader of a session and process group of its own: it cannot join those of the launcher.
    """
    os.setsid()
    os.umask(int(status["Umask"], 8))
    os.sched_setaffinity(0, os.sched_getaffinity(pid))
    nice = os.getpriority(os.PRIO_PROCESS, pid)
    if nice != os.getpriority(os.PRIO_PROCESS, 0):
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    score = read_proc(f"/proc/{pid}/oom_score_adj")
    if score != read_proc("/proc/self/oom_score_adj"):
        with open("/proc/self/oom_score_adj", "wb", 0) as ours:
            ours.write(score)
    for limit in LIMITS:
        value = resource.prlimit(pid, limit)
        if value != resource.getrlimit(limit):
            resource.setrlimit(limit, value)


def adopt_signals(status: dict[str, str]) -> None:
    """Ignore and block the signals that the launcher was started with; all others have their default action."""
    valid = _signal.valid_signals()
    ignored, blocked = (
        {number for number in valid if mask >> (number - 1) & 1}
        for mask in (int(status[name], 16) for name in ("SigIgn", "SigBlk"))
    )
    for number in valid - {_signal.SIGKILL, _signal.SIGSTOP}:
        action = _signal.SIG_IGN if number in ignored else _signal.SIG_DFL
        if _signal.getsignal(number) != action:
            _signal.signal(number, action)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, blocked)


def receive_launch(descriptors: list[int]) -> Launch:
    """Take the standard streams, the working directory and the rest. Raises OSError or ValueError."""
    stdin, stdout, stderr, directory, watched, started = descriptors
    for number, descriptor in enumerate((stdin, stdout, stderr)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.fchdir(directory)
    os.close(directory)
    end_with(watched)
    with open(started, "rb") as file:
        file.seek(0)
        return Launch(*marshal.load(file))


def end_with(watched: int) -> None:
    """Kill this process group as soon as the launcher, which holds the other end of this pipe, is gone.

    The kernel does it, so the session cannot mistake the death of its launcher for the end of its input.
    """
    fcntl.fcntl(watched, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(watched, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(watched, fcntl.F_SETFL, os.O_ASYNC)


def adopt_launch(launch: Launch) -> None:
    """Use the arguments and the environment of the launcher."""
    sys.argv[:] = [launch.script, *launch.words]
    os.environ.clear()
    os.environb.update(launch.environment)
    time.tzset()
