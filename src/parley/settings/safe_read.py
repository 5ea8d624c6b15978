"""Reading one file that somebody else may have planted: never a wait, never a flood, never a surprise.

Only regular files are read, as many bytes as are meant to be there. What is checked is
what was opened.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import Any

import msgspec

from parley.protocol.base import Json, Struct

MOST_BYTES = 1_000_000
# O_NONBLOCK: to open a pipe must not hang us.
FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class Unfit(Exception):
    """A file that cannot be used, and why."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


class Absent(Unfit):
    """There is no such file."""


class Opened(Struct, frozen=True, kw_only=True):
    """A file as it was found."""

    data: bytes
    real: str
    """Where it really is."""
    status: os.stat_result

    @property
    def identity(self) -> tuple[int, int]:
        return self.status.st_dev, self.status.st_ino


def read(path: Path | str, beneath: tuple[str, ...] | None = None, most_bytes: int = MOST_BYTES) -> Opened:
    """A regular file, at most so long; with `beneath`, only one that really lies in one of these folders.

    Raises Unfit, or Absent if nothing is there.
    """
    try:
        # To open a device can be an act of its own, so we look first.
        must_be_regular(os.stat(path).st_mode)
        descriptor = os.open(path, FLAGS)
    except (FileNotFoundError, NotADirectoryError):
        raise Absent("is not there") from None
    except (OSError, ValueError) as flaw:
        raise Unfit(f"cannot be read: {reason(flaw)}") from None
    try:
        status = os.fstat(descriptor)
        must_be_regular(status.st_mode)
        real = real_path(descriptor, path)
        if beneath is not None and not any(is_beneath(real, os.path.realpath(folder)) for folder in beneath):
            raise Unfit("is a link that leads out of its folder, and is not followed")
        if status.st_size > most_bytes:
            raise Unfit(f"has {status.st_size:,} bytes; more than {most_bytes:,} are not read")
        return Opened(data=drained(descriptor, most_bytes), real=real, status=status)
    except OSError as flaw:
        raise Unfit(f"cannot be read: {reason(flaw)}") from None
    finally:
        os.close(descriptor)


def drained(descriptor: int, most_bytes: int) -> bytes:
    data = b""
    while len(data) < most_bytes and (chunk := os.read(descriptor, most_bytes - len(data))):
        data += chunk
    return data


def must_be_regular(mode: int) -> None:
    """Raises Unfit."""
    if stat.S_ISDIR(mode):
        raise Unfit("is a folder, not a file")
    if not stat.S_ISREG(mode):
        raise Unfit("is no regular file")


def real_path(descriptor: int, path: Path | str) -> str:
    """The path of the opened object itself."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return os.path.realpath(path)


def is_beneath(path: str, folder: str) -> bool:
    """Whether a real path is in a real folder."""
    return path.startswith(folder.rstrip("/") + "/")


def reason(flaw: OSError | ValueError) -> str:
    number = flaw.errno if isinstance(flaw, OSError) else errno.EINVAL
    return os.strerror(number or errno.EIO)


def json_object(data: bytes) -> Json:
    """Raises Unfit with the line of the first flaw."""
    try:
        value: Any = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError) as flaw:
        raise Unfit(f"is no JSON: {flaw}", line_of_flaw(data, str(flaw))) from None
    except RecursionError:
        raise Unfit("is nested too deeply") from None
    if not isinstance(value, dict):
        raise Unfit("must be a JSON object", 1)
    return value


def line_of_flaw(data: bytes, text: str) -> int:
    """msgspec names the byte, or says that the data ends too early."""
    found = re.search(r"\(byte (\d+)\)", text)
    return data.count(b"\n", 0, int(found[1]) if found else len(data.rstrip())) + 1
