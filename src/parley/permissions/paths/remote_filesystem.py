"""The file system of a remote workspace, as decisions see it: every fact comes from there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from parley.permissions.base import EntryKind, ResolvedPath
from parley.permissions.paths.filesystem import resolve_path


class RemoteFilesystem:
    """`get(kind, path, limit, guess)` returns a fact, as workspace/remote/client.py does."""

    is_remote = True

    def __init__(self, home: str, get: Callable[[str, str, int, Any], Any]) -> None:
        self.home = home
        self._get = get

    def readlink(self, path: str) -> str | None:
        found = self._get("readlink", path, 0, None)
        return None if found is None else as_name(found)

    def exists(self, path: str) -> bool:
        return bool(self._get("exists", path, 0, False))

    def entries(self, path: str, limit: int) -> Mapping[str, EntryKind] | None:
        return as_names(self._get("entries", path, limit, {}))

    def listing(self, path: str, limit: int) -> Mapping[str, EntryKind] | None:
        return as_names(self._get("listing", path, limit, None))

    def is_folder(self, path: str) -> bool:
        return bool(self._get("is_folder", path, 0, False))

    def read(self, path: str, max_bytes: int) -> bytes | None:
        found: bytes | None = self._get("read", path, max_bytes, None)
        return found

    def identity(self, path: str) -> tuple[int, int] | None:
        found = self._get("identity", path, 0, None)
        return None if found is None else (found[0], found[1])

    def signature(self, path: str) -> tuple[int, ...] | None:
        found = self._get("signature", path, 0, None)
        return None if found is None else tuple(found)

    def state(self, path: str) -> tuple[int, ...] | None:
        found = self._get("state", path, 0, None)
        return None if found is None else tuple(found)

    def resolve(self, path: str) -> ResolvedPath:
        return resolve_path(path, self.readlink)


def as_name(found: str | bytes) -> str:
    """A name that is not valid Unicode arrives as bytes."""
    return found if isinstance(found, str) else os.fsdecode(found)


def as_names(found: Mapping[Any, EntryKind] | None) -> Mapping[str, EntryKind] | None:
    return None if found is None else {as_name(name): kind for name, kind in found.items()}
