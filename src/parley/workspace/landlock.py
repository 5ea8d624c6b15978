"""Landlock (Linux 5.13): the kernel checks the object that a confined process opens, wherever its name leads.

    process = run_restricted(lambda: subprocess.Popen(...), [AllowedPath(descriptor, READ)])    # a search program
    LandlockDomain(plan).enter()                                                                # a command, for good

A program that opens files by name can be redirected by replacing a file with a symlink at the right moment. Under
Landlock such an access fails.

A search program is restricted by a thread, which starts it and ends. The restriction covers that thread and its
children, not this process. A command in the sandbox confines itself between fork and exec, also with the system call
filter. Landlock knows only what is allowed, for whole folders: a file beneath a readable or writable folder cannot be
excepted. So the plan of a domain lists the entries beside an excepted path instead of the folder above it
(sandbox/base.py).

Runs in the supervisor processes, too, and uses only the standard library.
"""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import stat
import struct
import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar

from parley.workspace import syscalls

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ASK_VERSION = 1
PATH_BENEATH = 1
EXECUTE, WRITE_FILE, READ_FILE, READ_FOLDER, TRUNCATE, IOCTL_DEV = 1, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
FIRST_RIGHTS = (1 << 13) - 1
"""All rights to files of version 1."""
EVERY_RIGHT = (1 << 16) - 1
"""All rights to files of version 5."""
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""Rights that a single file can have."""
READ = READ_FILE | READ_FOLDER
TCP = 3
"""To bind and to connect."""
SCOPES = 3
"""Abstract sockets of others, and signals to others."""
SET_NO_NEW_PRIVILEGES, DROP_BOUNDING, SET_SECUREBITS = 38, 24, 28
SECCOMP = {"x86_64": 317, "aarch64": 277}
SET_FILTER, NEW_LISTENER, WAIT_KILLABLE = 1, 1 << 3, 1 << 5
NO_ROOT = 0b1111
"""Being root gives no capabilities, and that is final."""
CAPSET = {"x86_64": 126, "aarch64": 91}
CAPABILITY_VERSION = 0x20080522
LAST_CAPABILITY = 63

T = TypeVar("T")


class AllowedPath(NamedTuple):
    """An opened folder or file that a program may access, and the rights it gets."""

    descriptor: int
    access: int


def abi_version() -> int:
    """The version of Landlock that this kernel offers and lets us use; 0 for none."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        return call(CREATE_RULESET, None, 0, ASK_VERSION)
    except OSError:
        return 0


@cache
def is_supported() -> bool:
    """Whether this kernel has Landlock and lets us use it."""
    return abi_version() >= 1


def run_restricted(start: Callable[[], T], allowed: list[AllowedPath]) -> T:
    """Call `start` under the restriction and return its result. Raises what it raises, and OSError without Landlock."""
    done: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            # Restrict the calling thread permanently.
            ruleset = create_ruleset(FIRST_RIGHTS)
            try:
                for path in allowed:
                    add_rule(ruleset, path)
                prctl(SET_NO_NEW_PRIVILEGES, 1)
                call(RESTRICT_SELF, ruleset, 0)
            finally:
                os.close(ruleset)
            done.append(start())
        except BaseException as exc:
            errors.append(exc)

    thread = threading.Thread(target=run, name="parley-fence")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return done[0]


class LandlockDomain:
    """The rules for commands, prepared once."""

    def __init__(self, plan: dict[str, Any]) -> None:
        """`plan`: paths with their rights, and the filter. Raises OSError."""
        import ctypes

        code = base64.b64decode(plan["filter"])
        self._code = ctypes.create_string_buffer(code, len(code))
        self._filter = struct.pack("@HP", len(code) // 8, ctypes.addressof(self._code))
        self._machine = os.uname().machine
        self._writable = [path for path, access in plan["paths"] if access == EVERY_RIGHT] if plan["files"] else None
        self._ruleset = create_ruleset(EVERY_RIGHT if plan["files"] else 0, TCP, SCOPES)
        os.set_inheritable(self._ruleset, False)
        for path, access in plan["paths"]:
            with contextlib.suppress(FileNotFoundError, PermissionError, NotADirectoryError):
                self._allow(path, access)
        # See to it that no program gets capabilities.
        if os.geteuid() == 0:
            prctl(SET_SECUREBITS, NO_ROOT)
            for number in range(LAST_CAPABILITY + 1):
                with contextlib.suppress(OSError):  # beyond the last one that this kernel knows
                    prctl(DROP_BOUNDING, number)

    def prepare(self) -> None:
        """Called in the supervisor of a command, before it starts the command."""
        self._supervisor, self._command = socket.socketpair()

    def enter(self) -> None:
        """Confine this process for good. Raises OSError."""
        call(CAPSET[self._machine], struct.pack("=Ii", CAPABILITY_VERSION, 0), bytes(24))
        prctl(SET_NO_NEW_PRIVILEGES, 1)
        call(RESTRICT_SELF, self._ruleset, 0)
        flags = 0 if self._writable is None else NEW_LISTENER | WAIT_KILLABLE
        listener = call(SECCOMP[self._machine], SET_FILTER, flags, self._filter)
        if self._writable is not None:
            socket.send_fds(self._command, [b"!"], [listener])
            os.close(listener)

    def watch(self) -> None:
        """Called in the supervisor of a command that runs: answer the calls that it hands over."""
        from parley.workspace.sandbox.metadata_guard import MetadataGuard

        self._command.close()
        with self._supervisor:
            _, listeners, _, _ = socket.recv_fds(self._supervisor, 1, 1)
        if listeners and self._writable is not None:
            MetadataGuard(listeners[0], self._writable).start()

    def _allow(self, path: str, access: int) -> None:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if not stat.S_ISLNK(os.fstat(opened).st_mode):
                add_rule(self._ruleset, AllowedPath(opened, access))
        finally:
            os.close(opened)


# System calls. All of them raise OSError.


def create_ruleset(*handled: int) -> int:
    """A set of rules that refuses these rights: to files and, in later versions, to ports and to others' processes."""
    attributes = struct.pack(f"={len(handled)}Q", *handled)
    return call(CREATE_RULESET, attributes, len(attributes), 0)


def add_rule(ruleset: int, path: AllowedPath) -> None:
    is_folder = stat.S_ISDIR(os.fstat(path.descriptor).st_mode)
    rule = struct.pack("=Qi", path.access if is_folder else path.access & FILE_RIGHTS, path.descriptor)
    call(ADD_RULE, ruleset, PATH_BENEATH, rule, 0)


def call(number: int, *arguments: int | bytes | None) -> int:
    import ctypes

    words = [ctypes.c_long(word) if isinstance(word, int) else ctypes.c_char_p(word) for word in arguments]
    return check(syscalls.libc().syscall(ctypes.c_long(number), *words))


def prctl(option: int, argument: int) -> None:
    import ctypes

    check(syscalls.libc().prctl(option, *(ctypes.c_ulong(word) for word in (argument, 0, 0, 0))))


def check(result: int) -> int:
    if result < 0:
        error = syscalls.last_error()
        raise OSError(error.errno, f"the sandbox could not be applied: {error.strerror}")
    return result
