"""Linux system calls that Python does not wrap: openat2, renameat2 and statx, and the C library for others."""

from __future__ import annotations

import errno
import os
import struct
import sys
from functools import cache
from typing import Any

OPENAT2 = 437
BENEATH_WITHOUT_LINKS = 0x08 | 0x04 | 0x02  # RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS
RENAME_NOREPLACE = 1
AT_EMPTY_PATH, STATX_BTIME = 0x1000, 0x800
STATX_BYTES, BTIME_OFFSET = 256, 80


@cache
def has_openat2() -> bool:
    """Whether openat2 (Linux 5.6) is available and permitted."""
    if not sys.platform.startswith("linux") or os.uname().machine not in ("x86_64", "aarch64"):
        return False
    top = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(openat2(top, ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError:
        return False
    finally:
        os.close(top)
    return True


def openat2(top: int, inner: str, flags: int) -> int:
    """Open a path beneath a folder without symlinks. Raises OSError (ELOOP or EXDEV at a symlink)."""
    import ctypes

    how = _how_class()(flags, 0, BENEATH_WITHOUT_LINKS)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    call = ctypes.c_long(OPENAT2)
    descriptor: int = libc().syscall(call, ctypes.c_int(top), os.fsencode(inner), ctypes.byref(how), size)
    if descriptor < 0:
        raise last_error(inner)
    return descriptor


def rename_to_free_name(folder: int, old: str, new: str) -> bool:
    """Rename without replacing; False if not supported. Raises FileExistsError if the name is taken."""
    import ctypes

    call = getattr(libc(), "renameat2", None)
    if call is None:
        return False
    if call(folder, os.fsencode(old), folder, os.fsencode(new), ctypes.c_uint(RENAME_NOREPLACE)) == 0:
        return True
    error = last_error(new)
    if error.errno in (errno.ENOSYS, errno.EINVAL):
        return False
    raise error


def birth_time_ns(descriptor: int) -> int | None:
    """The creation time of an opened file or folder; None if the file system does not record it."""
    born: float | None = getattr(os.fstat(descriptor), "st_birthtime", None)
    if born is not None:
        return round(born * 1_000_000_000)
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    call = getattr(libc(), "statx", None)
    buffer = ctypes.create_string_buffer(STATX_BYTES)
    if call is None or call(descriptor, b"", AT_EMPTY_PATH, ctypes.c_uint(STATX_BTIME), buffer) != 0:
        return None
    (mask,) = struct.unpack_from("=I", buffer)
    if not mask & STATX_BTIME:
        return None
    seconds, nanoseconds = struct.unpack_from("=qI", buffer, BTIME_OFFSET)
    return int(seconds * 1_000_000_000 + nanoseconds)


def last_error(name: str | None = None) -> OSError:
    """Why the last call of `libc` failed, in this thread."""
    import ctypes

    code = ctypes.get_errno()
    return OSError(code, os.strerror(code), name)


@cache
def libc() -> Any:
    """The C library, whose calls set `last_error`."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


@cache
def _how_class() -> Any:
    """The struct that openat2 takes."""
    import ctypes

    class How(ctypes.Structure):
        _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]

    return How
