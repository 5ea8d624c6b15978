"""Restrict a child process to given folders with Landlock (Linux 5.13).

A program that opens files by name can be redirected by replacing a file with a symlink at the right moment. Under
Landlock such an access fails, because the kernel checks the opened object.

    process = run_restricted(lambda: subprocess.Popen(...), [AllowedPath(descriptor, READ)])

The restriction is applied in a separate thread, which starts the child and ends. It covers that thread and its
children, not this process.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ASK_VERSION = 1
PATH_BENEATH = 1
NO_NEW_PRIVILEGES = 38
RUN, READ_FILE, READ_FOLDER = 1 << 0, 1 << 2, 1 << 3
READ = READ_FILE | READ_FOLDER
EVERYTHING = (1 << 13) - 1
"""All access rights of Landlock's first version."""

T = TypeVar("T")


class AllowedPath(NamedTuple):
    """An opened folder or file that the child may access, and the rights it gets."""

    descriptor: int
    access: int


@cache
def is_supported() -> bool:
    """Whether this kernel has Landlock and lets us use it."""
    return abi_version() >= 1


def abi_version() -> int:
    """The version of Landlock that this kernel offers and lets us use; 0 for none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, _call(CREATE_RULESET, None, 0, ASK_VERSION))


def run_restricted(start: Callable[[], T], allowed: list[AllowedPath]) -> T:
    """Call `start` under the restriction and return its result. Raises what it raises, and OSError without Landlock."""
    done: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            restrict_thread(allowed)
            done.append(start())
        except BaseException as exc:
            errors.append(exc)

    thread = threading.Thread(target=run, name="parley-fence")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return done[0]


def restrict_thread(allowed: list[AllowedPath]) -> None:
    """Restrict the calling thread permanently. Raises OSError."""
    import ctypes
    import struct

    rights = struct.pack("=Q", EVERYTHING)
    ruleset = _check(_call(CREATE_RULESET, ctypes.c_char_p(rights), len(rights), 0))
    try:
        for path in allowed:
            is_folder = stat.S_ISDIR(os.fstat(path.descriptor).st_mode)
            access = path.access if is_folder else path.access & ~READ_FOLDER
            rule = struct.pack("=Qi", access, path.descriptor)
            _check(_call(ADD_RULE, ruleset, PATH_BENEATH, ctypes.c_char_p(rule), 0))
        _check(_libc().prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        _check(_call(RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def _call(number: int, *arguments: Any) -> int:
    import ctypes

    plain = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result: int = _libc().syscall(ctypes.c_long(number), *plain)
    return result


def _check(result: int) -> int:
    import ctypes

    if result < 0:
        raise OSError(ctypes.get_errno(), "Landlock could not be applied")
    return result


@cache
def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)
