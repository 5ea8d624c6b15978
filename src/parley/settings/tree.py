"""The files of a project, as settings see them: on this machine, or in a remote workspace.

`HOST_TREE` reads this machine. `RemoteTree` asks a workspace server, which reads with the same functions there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from parley.settings import safe_read
from parley.settings.safe_read import MOST_BYTES, FileContent, MissingFile, UnreadableFile


class FileTree(Protocol):
    is_remote: bool

    def read_file(
        self, path: Path | str, beneath: tuple[str, ...] | None = None, most_bytes: int = MOST_BYTES
    ) -> FileContent:
        """As `safe_read.read_file`."""

    def realpath(self, path: Path | str) -> str: ...
    def lexists(self, path: Path | str) -> bool: ...


class HostTree:
    is_remote = False

    def read_file(
        self, path: Path | str, beneath: tuple[str, ...] | None = None, most_bytes: int = MOST_BYTES
    ) -> FileContent:
        return safe_read.read_file(path, beneath, most_bytes)

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
            if not any(safe_read.is_beneath(found["real"], folder) for folder in folders):
                raise UnreadableFile("is a symbolic link to a file outside its folder; not followed")
        return FileContent(data=found["data"], real=found["real"], status=os.stat_result(found["status"]))

    def realpath(self, path: Path | str) -> str:
        return str(self._get("realpath", str(path), 0, str(path)))

    def lexists(self, path: Path | str) -> bool:
        return bool(self._get("exists", str(path), 0, False))


def find_file(path: str, most_bytes: int) -> dict[str, Any]:
    """The answer to the fact `file`, on the machine that has it."""
    try:
        found = safe_read.read_file(path, most_bytes=min(most_bytes, MOST_BYTES))
    except MissingFile:
        return {"missing": True}
    except UnreadableFile as exc:
        return {"error": str(exc)}
    return {"data": found.data, "real": found.real, "status": list(found.status)}


TREE_FACTS: Mapping[str, Callable[[str, int], Any]] = {
    "file": find_file,
    "realpath": lambda path, limit: os.path.realpath(path),
}
