"""Protected names that no mount protects: compared after each command, and restored.

Runs in the engine and in the process that cleans up after a killed engine, and uses only the standard library.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

GIT = ".git"
GIT_RESTRICTED = ("config", "config.worktree", "hooks", "commondir", "gitdir")
"""Files of a repository that name programs or other repositories."""


class ProtectedNames(NamedTuple):
    """Which names are protected, in lower case."""

    folders: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    pairs: tuple[tuple[str, str], ...] = ()
    """A folder and its subfolder."""
    exempt: tuple[tuple[str, str], ...] = ()
    """Folders below protected ones that commands may change."""
    masked: frozenset[str] = frozenset()
    """The folders that are masked if they do not exist."""

    def includes(self, name: str) -> bool:
        plain = normalize(name)
        return plain in self.folders or plain in self.files


def normalize(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


class ProtectedEntries:
    """Protected names in given folders that no mount protects: compares them, and restores them."""

    def __init__(self, folders: Iterable[str], names: ProtectedNames) -> None:
        self._names = names
        self.before = {folder: self._list(folder) for folder in folders}
        """The entries to restore."""

    def accept(self) -> None:
        """Take the current entries as those to restore."""
        self.before = {folder: self._list(folder) for folder in self.before}

    def restore(self, quarantine: str) -> list[str]:
        """Move new entries away and restore changed symlinks. Returns the paths. Raises OSError."""
        found: list[str] = []
        for folder, before in self.before.items():
            for name, target in self._list(folder).items():
                path = os.path.join(folder, name)
                if name not in before or (before[name] and target != before[name]):
                    move_away(path, quarantine)
                    found.append(path)
            for name, target in before.items():
                path = os.path.join(folder, name)
                if target and not os.path.lexists(path):
                    os.symlink(target, path)
                    found.append(path)
        return list(dict.fromkeys(found))

    def to_json(self) -> dict[str, object]:
        """What another process needs to restore the entries."""
        return {"folders": sorted(self._names.folders), "files": sorted(self._names.files), "before": self.before}

    def _list(self, folder: str) -> dict[str, str]:
        """The protected names in a folder, each with the target of a symlink or ""."""
        try:
            names = [name for name in os.listdir(folder) if self._is_protected(name, folder)]
        except OSError:
            return {}
        return {name: read_link(os.path.join(folder, name)) for name in names}

    def _is_protected(self, name: str, folder: str) -> bool:
        if normalize(os.path.basename(folder)) == GIT:
            return name in GIT_RESTRICTED
        return self._names.includes(name)


def move_away(path: str, quarantine: str) -> None:
    """Move a file or a folder into a private folder, whatever it contains. Raises OSError."""
    os.makedirs(quarantine, mode=0o700, exist_ok=True)
    place = os.path.join(quarantine, f"{len(os.listdir(quarantine))}-{os.path.basename(path).lstrip('.')}")
    try:
        os.rename(path, place)
    except OSError:  # on another file system
        import shutil

        shutil.move(path, place)


def read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
