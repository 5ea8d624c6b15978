"""Whether a forked process may act for a launcher: both must be confined in the same way.

A session inherits what confines the server, not what confines its launcher. So the forked process reads everything that
/proc shows of both, and refuses at the first difference; the launcher then starts cold. Nothing that the launcher
says of itself is believed: a process in a sandbox must not escape from it through the server.

/proc shows how many seccomp filters a process has, but not which, and nothing of Landlock. Both need privileges or
`no_new_privs`. So a launcher that has filters or `no_new_privs` is refused unless process 1 has the same.
"""

from __future__ import annotations

import errno
import os
import select
import socket

STATUS_FIELDS = (
    "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp",
    "Seccomp_filters", "Speculation_Store_Bypass", "SpeculationIndirectBranch", "Mems_allowed",
)  # fmt: skip
INHERITED_FIELDS = ("NoNewPrivs", "Seccomp", "Seccomp_filters")
FILES = ("cgroup", "cpuset", "attr/current", "attr/exec", "loginuid", "sessionid", "personality", "coredump_filter")
INIT = 1
READ_BYTES = 1 << 16
SO_PEERPIDFD = 77


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
