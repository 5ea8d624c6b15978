"""Read files that may have been planted by an attacker, on this machine or in a remote workspace.

Only regular files are read, up to a maximum size, without blocking. The checks apply to the opened
descriptor, so the file cannot be exchanged between check and read.

As settings see the files of a project: `HOST_TREE` reads this machine. `RemoteTree` asks a workspace server, which
reads with the same functions there.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from parley.protocol.base import Json, Struct

MOST_BYTES = 1_000_000
# O_NONBLOCK: opening a pipe must not block.
FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


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

    def text(self) -> str:
        """Raises UnreadableFile."""
        try:
            return self.data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise UnreadableFile("is not UTF-8 text") from None


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


class FileTree(Protocol):
    is_remote: bool

    def read_file(
        self, path: Path | str, beneath: tuple[str, ...] | None = None, most_bytes: int = MOST_BYTES
    ) -> FileContent:
        """As `read_file`."""

    def realpath(self, path: Path | str) -> str: ...
    def lexists(self, path: Path | str) -> bool: ...


class HostTree:
    is_remote = False

    def read_file(
        self, path: Path | str, beneath: tuple[str, ...] | None = None, most_bytes: int = MOST_BYTES
    ) -> FileContent:
        return read_file(path, beneath, most_bytes)

    def realpath(self, path: Path | str) -> str:
        return os.path.realpath(path)

    def lexists(self, path: Path | str) -> bool:
        return os.path.lexists(path)


HOST_TREE = HostTree()


class RemoteTree:
    """`get(kind, path, limit, guess)` returns a fact, as workspace/remote/client.py does."""

    is_remote = True

    def __init__(self, get: Callable[[str, str, int, Any], Any]) -> None:
        self._get = get

    def read_file(
        self, path: Path | str, beneath: tuple[str, ...] | None = None, most_bytes: int = MOST_BYTES
    ) -> FileContent:
        found = self._get("file", str(path), most_bytes, {"missing": True})
        if found.get("missing"):
            raise MissingFile("does not exist")
        if "error" in found:
            raise UnreadableFile(found["error"])
        if beneath is not None:
            folders = [self.realpath(folder) for folder in beneath]
            if not any(is_beneath(found["real"], folder) for folder in folders):
                raise UnreadableFile("is a symbolic link to a file outside its folder; not followed")
        return FileContent(data=found["data"], real=found["real"], status=os.stat_result(found["status"]))

    def realpath(self, path: Path | str) -> str:
        return str(self._get("realpath", str(path), 0, str(path)))

    def lexists(self, path: Path | str) -> bool:
        return bool(self._get("exists", str(path), 0, False))


def find_file(path: str, most_bytes: int) -> dict[str, Any]:
    """The answer to the fact `file`, on the machine that has it."""
    try:
        found = read_file(path, most_bytes=min(most_bytes, MOST_BYTES))
    except MissingFile:
        return {"missing": True}
    except UnreadableFile as exc:
        return {"error": str(exc)}
    return {"data": found.data, "real": found.real, "status": list(found.status)}


TREE_FACTS: Mapping[str, Callable[[str, int], Any]] = {
    "file": find_file,
    "realpath": lambda path, limit: os.path.realpath(path),
}
