"""Modes, owners, times and attributes of files under Landlock, which has no rules for them.

The kernel hands these system calls of a command to its supervisor (seccomp user notification), which is not confined.
It opens the file that the call is about, and makes the change itself if the file is in a folder that commands may
change. The arguments in the memory of the command are not used after the check, so changing them has no effect.

    seccomp.build_filter(rules, machine, notify_rules(machine))    # for the command, see `landlock.py`
    MetadataGuard(listener, writable).start()                      # in its supervisor

Runs in the supervisor processes and uses only the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import stat
import struct
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

from parley.workspace import syscalls
from parley.workspace.sandbox import seccomp
from parley.workspace.sandbox.seccomp import Code, Numbers

NOTIFY = 0x7FC00000
RECEIVE, SEND, IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
NOTIFICATION, REPLY = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH = -100, 0x100, 0x1000
MAX_PATH_BYTES, MAX_VALUE_BYTES = 4096, 65536
SPECIAL_MODES = stat.S_ISUID | stat.S_ISGID
OWN_ATTRIBUTES = (b"user.", b"system.posix_acl_")
"""Others, such as the capabilities of a program, need privileges that commands do not have, even if we do."""


class GuardedCall(NamedTuple):
    """How the arguments of a system call name a file. Numbers are positions."""

    action: str
    numbers: tuple[int | None, int | None]
    folder: int | None = None
    path: int | None = None
    flags: int | None = None
    follows: bool = True
    value: int = 0
    """The first argument after the file."""


CALLS = (
    GuardedCall("mode", (90, None), path=0, value=1),
    GuardedCall("mode", (91, 52), folder=0, value=1),
    GuardedCall("mode", (268, 53), folder=0, path=1, value=2),
    GuardedCall("mode", (452, 452), folder=0, path=1, flags=3, value=2),
    GuardedCall("owner", (92, None), path=0, value=1),
    GuardedCall("owner", (93, 55), folder=0, value=1),
    GuardedCall("owner", (94, None), path=0, follows=False, value=1),
    GuardedCall("owner", (260, 54), folder=0, path=1, flags=4, value=2),
    GuardedCall("times", (280, 88), folder=0, path=1, flags=3, value=2),
    GuardedCall("set", (188, 5), path=0, value=1),
    GuardedCall("set", (189, 6), path=0, follows=False, value=1),
    GuardedCall("set", (190, 7), folder=0, value=1),
    GuardedCall("remove", (197, 14), path=0, value=1),
    GuardedCall("remove", (198, 15), path=0, follows=False, value=1),
    GuardedCall("remove", (199, 16), folder=0, value=1),
)
REFUSED: Numbers = {
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
}
"""Old and new calls for the same, for which programs have another way."""


def notify_rules(machine: str) -> Code:
    """The part of a filter that hands the calls over."""
    column, _ = seccomp.MACHINES[machine]
    code = seccomp.refuse(REFUSED.values(), column, errno.ENOSYS)
    for call in CALLS:
        number = call.numbers[column]
        if number is not None:
            code += [(seccomp.JUMP_EQUAL, 0, 1, number), (seccomp.RETURN, 0, 0, NOTIFY)]
    return code


class MetadataGuard:
    """Answers the calls of a command and its children."""

    def __init__(self, listener: int, writable: list[str]) -> None:
        self._listener = listener
        self._writable = tuple(path.rstrip("/") for path in writable)
        column, _ = seccomp.MACHINES[os.uname().machine]
        self._calls = {call.numbers[column]: call for call in CALLS}

    def start(self) -> None:
        threading.Thread(target=self._serve, name="parley-metadata", daemon=True).start()

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        while not any(event & select.POLLHUP for _, event in poll.poll()):  # until the last process has ended
            received = bytearray(NOTIFICATION.size)
            try:
                fcntl.ioctl(self._listener, RECEIVE, received)
            except OSError:
                continue  # the process was killed meanwhile
            notification = NOTIFICATION.unpack(received)
            error = 0
            try:
                self._answer(notification[0], notification[1], notification[3], notification[6:])
            except OSError as exc:
                error = exc.errno or errno.EPERM
            except Exception:  # whatever goes wrong, the call fails and the next one is answered
                error = errno.EPERM
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._listener, SEND, REPLY.pack(notification[0], 0, -error, 0))

    def _answer(self, id: int, pid: int, number: int, arguments: tuple[int, ...]) -> None:
        """Make the change that a call asks for. Raises OSError."""
        call = self._calls[number]
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory, self._open(call, pid, arguments, memory) as file:
            given = self._read_values(call, arguments, memory)
            fcntl.ioctl(self._listener, IS_VALID, struct.pack("=Q", id))  # the process is still the one that called
            status = os.fstat(file)
            if not self._may_change(file) or status.st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "outside")
            self._change(call.action, file, status, given)

    @contextlib.contextmanager
    def _open(self, call: GuardedCall, pid: int, arguments: tuple[int, ...], memory: Any) -> Iterator[int]:
        """The file that a call is about, opened only to refer to it."""
        folder = AT_FDCWD if call.folder is None else ctypes.c_int(arguments[call.folder]).value
        flags = 0 if call.flags is None else arguments[call.flags]
        base = f"/proc/{pid}/cwd" if folder == AT_FDCWD else f"/proc/{pid}/fd/{folder}"
        path = b""
        if call.path is not None and arguments[call.path]:
            path = read_text(memory, arguments[call.path], MAX_PATH_BYTES)
            if not path and not flags & AT_EMPTY_PATH:
                raise FileNotFoundError(errno.ENOENT, "empty path")
        follows = call.follows and not flags & AT_SYMLINK_NOFOLLOW
        for own in (b"/proc/self/", b"/proc/thread-self/"):
            if path.startswith(own):  # it means the caller, not us
                path = b"/proc/%d/" % pid + path[len(own) :]
        opened = os.open(base, os.O_PATH | os.O_CLOEXEC)
        try:
            if path:
                outer, opened = (
                    opened,
                    os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if follows else os.O_NOFOLLOW), dir_fd=opened),
                )
                os.close(outer)
            yield opened
        finally:
            os.close(opened)

    def _may_change(self, file: int) -> bool:
        path = os.readlink(f"/proc/self/fd/{file}")
        if not path.startswith("/") or path.startswith("/memfd:"):
            return True  # a pipe or a socket
        return any(path == each or path.startswith(each + "/") for each in self._writable)

    def _read_values(self, call: GuardedCall, arguments: tuple[int, ...], memory: Any) -> tuple[Any, ...]:
        first, second, third, fourth = (*arguments[call.value :], 0, 0, 0, 0)[:4]
        if call.action == "times":
            if not first:
                return (None,)
            memory.seek(first)
            return (memory.read(32),)
        if call.action in ("set", "remove"):
            name = read_text(memory, first, 256)
            if not name.startswith(OWN_ATTRIBUTES):
                raise PermissionError(errno.EPERM, "privileged attribute")
            if call.action == "remove":
                return (name,)
            if third > MAX_VALUE_BYTES:
                raise OSError(errno.E2BIG, "value")
            memory.seek(second)
            return (name, memory.read(third) if third else b"", ctypes.c_int(fourth).value)
        return (first, second)

    def _change(self, action: str, file: int, status: os.stat_result, given: tuple[Any, ...]) -> None:
        path = f"/proc/self/fd/{file}"
        if action == "mode":
            mode = given[0] & 0o7777
            if mode & SPECIAL_MODES and not stat.S_ISDIR(status.st_mode):
                raise PermissionError(errno.EPERM, "a program that runs as its owner")
            os.chmod(path, mode)
        elif action == "owner":
            kept = (ctypes.c_uint(-1).value, -1)
            same = given[0] & 0xFFFFFFFF in (*kept, status.st_uid) and given[1] & 0xFFFFFFFF in (*kept, status.st_gid)
            if not same:
                raise PermissionError(errno.EPERM, "another owner")
        elif action == "times":
            times = None if given[0] is None else ctypes.c_char_p(given[0])
            if syscalls.libc().utimensat(file, b"", times, AT_EMPTY_PATH) != 0:
                raise syscalls.last_error()
        elif action == "set":
            os.setxattr(path, *given)
        else:
            os.removexattr(path, *given)


def read_text(memory: Any, address: int, limit: int) -> bytes:
    """A text of another process. It may end near the end of its memory."""
    memory.seek(address)
    page = 4096 - address % 4096
    found = memory.read(min(page, limit))
    if b"\0" not in found and len(found) < limit:
        found += memory.read(limit - len(found))
    text, end, _ = found.partition(b"\0")
    if not end:
        raise OSError(errno.ENAMETOOLONG, "text")
    return bytes(text)
