"""A file system in a dictionary, for decisions: links by their paths."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from parley.permissions.base import Way
from parley.permissions.view import follow


class Tree:
    home = "/home/me"

    def __init__(self, links: Mapping[str, str] | None = None, files: Collection[str] = ()) -> None:
        self._links = dict(links or {})
        self._files = frozenset(files)

    def link(self, path: str) -> str | None:
        return self._links.get(path)

    def has(self, path: str) -> bool:
        return path in self._links or path in self._files

    def way(self, path: str) -> Way:
        return follow(path, self.link)
