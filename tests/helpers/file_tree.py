"""A file system in a dictionary, for decisions: links by their paths."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from parley.permissions.filesystem import EntryKind, Filesystem


class Tree(Filesystem):
    home = "/home/me"

    def __init__(
        self,
        links: Mapping[str, str] | None = None,
        files: Collection[str] = (),
        contents: Mapping[str, str] | None = None,
    ) -> None:
        self._links = dict(links or {})
        self._contents = {path: text.encode() for path, text in (contents or {}).items()}
        self._files = frozenset(files) | {part for path in self._contents for part in above(path)}

    def readlink(self, path: str) -> str | None:
        return self._links.get(path)

    def exists(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        real = f"{(self.resolve(folder).real or '').rstrip('/')}/{name}"
        return any(known == real or known.startswith(f"{real}/") for known in (*self._links, *self._files))

    def entries(self, path: str, limit: int) -> Mapping[str, EntryKind] | None:
        top = (self.resolve(path).real or "").rstrip("/") + "/"
        found: dict[str, EntryKind] = {}
        for known in (*self._links, *sorted(self._files)):
            if known.startswith(top):
                name, below, _ = known.removeprefix(top).partition("/")
                found[name] = "folder" if below else "link" if known in self._links else "file"
        return found if len(found) <= limit else None

    def is_folder(self, path: str) -> bool:
        real = self.resolve(path).real
        is_above = any(known.startswith(f"{(real or '').rstrip('/')}/") for known in self._files)
        return is_above or (real in self._files and real not in self._contents)

    def read(self, path: str, max_bytes: int) -> bytes | None:
        return self._contents.get(self.resolve(path).real or "")

    def identity(self, path: str) -> tuple[int, int] | None:
        real = self.resolve(path).real
        return (1, hash(real)) if real in self._files else None


def above(path: str) -> list[str]:
    """A path and the folders it is in."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]
