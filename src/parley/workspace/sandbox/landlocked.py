"""Confine a process with Landlock and the system call filter, between fork and exec.

Landlock knows only what is allowed, for whole folders: a file beneath a readable or writable folder cannot be excepted.
So the plan lists the entries beside an excepted path instead of the folder above it.

Runs in the supervisor processes and uses only the standard library.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import os
import socket
import stat
import struct
from typing import Any

from parley.workspace.sandbox.metadata_guard import MetadataGuard

CREATE_RULESET, ADD_RULE, RESTRICT_SELF, PATH_BENEATH = 444, 445, 446, 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL_DEV = 1, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
EVERY_RIGHT = (1 << 16) - 1
"""All rights to files of version 5."""
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""Rights that a single file can have."""
READ = EXECUTE | READ_FILE | READ_DIR
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


class LandlockDomain:
    """The rules for commands, prepared once."""

    def __init__(self, plan: dict[str, Any]) -> None:
        """`plan`: paths with their rights, and the filter. Raises OSError."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        code = base64.b64decode(plan["filter"])
        self._code = ctypes.create_string_buffer(code, len(code))
        self._filter = struct.pack("@HP", len(code) // 8, ctypes.addressof(self._code))
        self._machine = os.uname().machine
        self._writable = [path for path, access in plan["paths"] if access == EVERY_RIGHT] if plan["files"] else None
        files = EVERY_RIGHT if plan["files"] else 0
        attributes = struct.pack("=QQQ", files, TCP, SCOPES)
        self._ruleset = self._call(CREATE_RULESET, attributes, len(attributes), 0)
        os.set_inheritable(self._ruleset, False)
        for path, access in plan["paths"]:
            with contextlib.suppress(FileNotFoundError, PermissionError, NotADirectoryError):
                self._allow(path, access)
        self._give_up_capabilities()

    def prepare(self) -> None:
        """Called in the supervisor of a command, before it starts the command."""
        self._supervisor, self._command = socket.socketpair()

    def enter(self) -> None:
        """Confine this process for good. Raises OSError."""
        self._call(CAPSET[self._machine], struct.pack("=Ii", CAPABILITY_VERSION, 0), bytes(24))
        self._prctl(SET_NO_NEW_PRIVILEGES, 1)
        self._call(RESTRICT_SELF, self._ruleset, 0)
        flags = 0 if self._writable is None else NEW_LISTENER | WAIT_KILLABLE
        listener = self._call(SECCOMP[self._machine], SET_FILTER, flags, self._filter)
        if self._writable is not None:
            socket.send_fds(self._command, [b"!"], [listener])
            os.close(listener)

    def watch(self) -> None:
        """Called in the supervisor of a command that runs: answer the calls that it hands over."""
        self._command.close()
        with self._supervisor:
            _, listeners, _, _ = socket.recv_fds(self._supervisor, 1, 1)
        if listeners and self._writable is not None:
            MetadataGuard(listeners[0], self._writable, self._libc).start()

    def _allow(self, path: str, access: int) -> None:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            mode = os.fstat(opened).st_mode
            if stat.S_ISLNK(mode):
                return
            rule = struct.pack("=Qi", access if stat.S_ISDIR(mode) else access & FILE_RIGHTS, opened)
            self._call(ADD_RULE, self._ruleset, PATH_BENEATH, rule, 0)
        finally:
            os.close(opened)

    def _give_up_capabilities(self) -> None:
        """See to it that no program gets capabilities. Those that this process has stay until a command drops them."""
        if os.geteuid() == 0:
            self._prctl(SET_SECUREBITS, NO_ROOT)
            for number in range(LAST_CAPABILITY + 1):
                with contextlib.suppress(OSError):  # beyond the last one that this kernel knows
                    self._prctl(DROP_BOUNDING, number)

    def _call(self, number: int, *arguments: int | bytes) -> int:
        words = [ctypes.c_long(word) if isinstance(word, int) else ctypes.c_char_p(word) for word in arguments]
        return self._check(self._libc.syscall(ctypes.c_long(number), *words))

    def _prctl(self, option: int, *arguments: int | bytes) -> None:
        words = [ctypes.c_ulong(word) if isinstance(word, int) else ctypes.c_char_p(word) for word in arguments]
        words += [ctypes.c_ulong(0)] * (4 - len(words))
        self._check(self._libc.prctl(option, *words))

    def _check(self, result: int) -> int:
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"the sandbox could not be applied: {os.strerror(code)}")
        return result
