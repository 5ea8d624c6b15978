"""What a later review of the profile tried: files that run as their owner, objects known by number, devices, leases.

The calls that would reach every process of the user are made with a value that the kernel refuses after the filter.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct

from tests.helpers.escape.attempts import Arena, attempt, syscall

OPENAT2, MKNOD, FCHMODAT2, LINKAT = 437, 133, 452, 265
SHMCTL, MSGSND, MQ_UNLINK, IOPRIO_SET = 31, 69, 241, 251
AT_FDCWD, AT_SYMLINK_FOLLOW, REMOVE = -100, 0x400, 0
PROGRAM = 0o755
SPECIAL = stat.S_ISUID | stat.S_ISGID
COMMON_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "stdin", "stdout", "stderr", "fd", "pts")


def tell_special(arena: Arena, path: str) -> None:
    if os.lstat(path).st_mode & SPECIAL:
        arena.escaped(oct(os.lstat(path).st_mode))


# Files in the workspace that others could run outside, with the rights of the user.


@attempt()
def set_user_id_when_opening(arena: Arena) -> None:
    os.close(os.open(arena.own(), os.O_WRONLY | os.O_CREAT, PROGRAM | stat.S_ISUID))
    tell_special(arena, arena.own())


@attempt(needs="a file system with unnamed files")
def set_user_id_of_unnamed_file(arena: Arena) -> None:
    file = os.open(arena.workspace, os.O_WRONLY | os.O_TMPFILE, PROGRAM | stat.S_ISUID)
    syscall(LINKAT, AT_FDCWD, f"/proc/self/fd/{file}".encode(), AT_FDCWD, arena.own().encode(), AT_SYMLINK_FOLLOW)
    tell_special(arena, arena.own())


@attempt()
def set_user_id_by_node(arena: Arena) -> None:
    syscall(MKNOD, arena.own().encode(), stat.S_IFREG | PROGRAM | stat.S_ISUID, 0)
    tell_special(arena, arena.own())


@attempt()
def set_user_id_by_newer_open(arena: Arena) -> None:
    how = struct.pack("QQQ", os.O_WRONLY | os.O_CREAT, PROGRAM | stat.S_ISUID, 0)
    syscall(OPENAT2, AT_FDCWD, arena.own().encode(), how, len(how))
    tell_special(arena, arena.own())


@attempt()
def set_user_id_by_path(arena: Arena) -> None:
    os.chmod(arena.own_file(), PROGRAM | stat.S_ISUID)
    tell_special(arena, arena.own(".own"))


@attempt()
def set_group_id_by_descriptor(arena: Arena) -> None:
    with open(arena.own_file()) as file:
        os.fchmod(file.fileno(), PROGRAM | stat.S_ISGID)
    tell_special(arena, arena.own(".own"))


@attempt()
def set_user_id_by_newer_call(arena: Arena) -> None:
    syscall(FCHMODAT2, AT_FDCWD, arena.own_file().encode(), PROGRAM | stat.S_ISUID, 0)
    tell_special(arena, arena.own(".own"))


# Objects of other processes that need no name.


@attempt()
def send_message_to_known_queue(arena: Arena) -> None:
    syscall(MSGSND, arena.config["messages"], struct.pack("l", 1) + b"mine", 4, 0)
    arena.escaped()


@attempt()
def remove_known_segment(arena: Arena) -> None:
    syscall(SHMCTL, arena.config["segment"], REMOVE, None)
    arena.escaped()


@attempt(needs="message queues")
def remove_named_queue(arena: Arena) -> None:
    syscall(MQ_UNLINK, str(arena.config["queue"]).encode())
    arena.escaped()


@attempt()
def change_disk_priority_of_user(arena: Arena) -> None:
    every_process_of_user, no_such_class = 3, 7 << 13
    try:
        syscall(IOPRIO_SET, every_process_of_user, 0, no_such_class)
    except OSError as exc:
        if exc.errno == errno.EINVAL and os.stat("/proc/self/ns/pid").st_ino == arena.config["pid_namespace"]:
            arena.escaped()


@attempt()
def make_writers_outside_wait(arena: Arena) -> None:
    fcntl.fcntl(os.open(arena.file(), os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK)
    arena.escaped()


# Files of the kernel. They are opened for writing, and nothing is written.


def open_for_writing(arena: Arena, paths: list[str]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            arena.escaped(path)


@attempt(needs="root")
def open_other_devices(arena: Arena) -> None:
    names = [name for name in os.listdir("/dev") if name not in COMMON_DEVICES and not name.startswith("watchdog")]
    paths = [os.path.join("/dev", name) for name in [*names, "net/tun", "mapper/control", "cpu/0/msr"]]
    open_for_writing(arena, [path for path in paths if stat.S_IFMT(mode_of(path)) in (stat.S_IFCHR, stat.S_IFBLK)])


@attempt(needs="root")
def open_kernel_controls(arena: Arena) -> None:
    names = ("sysrq-trigger", "irq/default_smp_affinity", "mtrr", "latency_stats", "driver/rtc")
    open_for_writing(arena, [os.path.join("/proc", name) for name in names])


@attempt()
def open_controls_of_victim(arena: Arena) -> None:
    names = ("timerslack_ns", "coredump_filter", "autogroup", "clear_refs", "comm", "sched", "oom_adj")
    open_for_writing(arena, [f"/proc/{arena.victim}/{name}" for name in names])


def mode_of(path: str) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0
