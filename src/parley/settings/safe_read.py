"""Read a file that may have been planted by an attacker.

Only regular files are read, up to a maximum size, without blocking. The checks apply to the opened
descriptor, so the file cannot be exchanged between check and read.
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
# O_NONBLOCK: opening a pipe must not block.
FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


NOT_UTF8 = "is not UTF-8 text"


class UnreadableFile(Exception):
    """A file cannot be used. The text continues a sentence that starts with the path: "is too large"."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


class MissingFile(UnreadableFile):
    """The file does not exist."""


class FileContent(Struct, frozen=True, kw_only=True):
    """The content of a file."""

    data: bytes
    real: str
    """The real path, with links resolved."""
    status: os.stat_result

    @property
    def identity(self) -> tuple[int, int]:
        return self.status.st_dev, self.status.st_ino


def read_file(path: Path | str, beneath: tuple[str, ...] | None = None, most_bytes: int = MOST_BYTES) -> FileContent:
    """Read a regular file; with `beneath`, only if its real path is inside one of these folders.

    Raises UnreadableFile, or MissingFile if it does not exist.
    """
    try:
        # Opening a device can have an effect, so check first.
        check_regular(os.stat(path).st_mode)
        descriptor = os.open(path, FLAGS)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFile("does not exist") from None
    except (OSError, ValueError) as exc:
        raise UnreadableFile(f"cannot be read: {describe_error(exc)}") from None
    try:
        status = os.fstat(descriptor)
        check_regular(status.st_mode)
        real = real_path(descriptor, path)
        if beneath is not None and not any(is_beneath(real, os.path.realpath(folder)) for folder in beneath):
            raise UnreadableFile("is a symbolic link to a file outside its folder; not followed")
        if status.st_size > most_bytes:
            raise UnreadableFile(f"is too large: {status.st_size:,} bytes (the limit is {most_bytes:,})")
        return FileContent(data=read_all(descriptor, most_bytes), real=real, status=status)
    except OSError as exc:
        raise UnreadableFile(f"cannot be read: {describe_error(exc)}") from None
    finally:
        os.close(descriptor)


def read_all(descriptor: int, most_bytes: int) -> bytes:
    data = b""
    while len(data) < most_bytes and (chunk := os.read(descriptor, most_bytes - len(data))):
        data += chunk
    return data


def check_regular(mode: int) -> None:
    """Raises UnreadableFile."""
    if stat.S_ISDIR(mode):
        raise UnreadableFile("is a folder, not a file")
    if not stat.S_ISREG(mode):
        raise UnreadableFile("is not a regular file")


def real_path(descriptor: int, path: Path | str) -> str:
    """Return the path of an opened file."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return os.path.realpath(path)


def is_beneath(path: str, folder: str) -> bool:
    """Whether a path is inside a folder; both must be real paths."""
    return path.startswith(folder.rstrip("/") + "/")


def describe_error(exc: OSError | ValueError) -> str:
    number = exc.errno if isinstance(exc, OSError) else errno.EINVAL
    return os.strerror(number or errno.EIO)


def parse_json_object(data: bytes) -> Json:
    """Raises UnreadableFile with the line of the first error."""
    try:
        value: Any = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise UnreadableFile(f"is not valid JSON: {exc}", line_of_error(data, str(exc))) from None
    except RecursionError:
        raise UnreadableFile("is nested too deeply") from None
    if not isinstance(value, dict):
        raise UnreadableFile("must be a JSON object", 1)
    return value


def line_of_error(data: bytes, text: str) -> int:
    """Return the line of a msgspec error, which names the byte or says that the data is truncated."""
    found = re.search(r"\(byte (\d+)\)", text)
    return data.count(b"\n", 0, int(found[1]) if found else len(data.rstrip())) + 1
