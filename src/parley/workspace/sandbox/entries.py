"""Protected names that no mount protects: compared after each command, and restored.

A command may have put a symlink in the place of a folder, and may still be running. So everything here is done relative
to folders that were opened without following a symlink.

Runs in the engine and in the process that cleans up after a killed engine, and uses only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat

from parley.workspace.sandbox.folders import Entries, FolderIndex, give_rights, open_folder, open_inner, open_parent
from parley.workspace.sensitive_names import ACTIVATE, PROTECTED_FOLDERS, normalize_name


class ProtectedEntries:
    """Protected names that no mount protects: compares them, and restores them."""

    def __init__(self, index: FolderIndex) -> None:
        self._index = index
        self.before = index.entries
        """The entries to restore, by folder."""

    def look(self) -> None:
        self._index.refresh()

    def accept(self) -> None:
        """Take the entries that were found last as those to restore."""
        self.before = self._index.entries

    def accept_change(self, path: str) -> bool:
        """Take over a change of the user's. Returns whether the path is protected."""
        if not self._index.may_cover(path):
            return False
        self._index.refresh()
        accepted = dict(self.before)
        for folder, entries in self._index.entries.items():
            for name, target in entries.items():
                entry = os.path.join(folder, name)
                if path == entry or path.startswith(entry + "/"):
                    accepted[folder] = {**accepted.get(folder, {}), name: target}
        self.before = accepted
        return True

    def restore(self, quarantine: str) -> list[str]:
        """Move new entries away and restore changed symlinks. Returns the paths. Raises OSError."""
        self._index.refresh()
        found: list[str] = []
        problem: OSError | None = None
        for folder, entries in self._index.entries.items():
            before = self.before.get(folder, {})
            for name, target in entries.items():
                path = os.path.join(folder, name)
                if is_new_environment(name, before):
                    continue
                if name not in before or (before[name] and target != before[name]):
                    try:
                        with open_parent(path) as (opened, last):
                            move_away(opened, last, quarantine)
                    except FileNotFoundError:
                        continue  # with a folder above it
                    except OSError as exc:  # the others are restored all the same
                        problem = problem or OSError(exc.errno, exc.strerror, path)
                    found.append(path)
        for folder, before in self.before.items():
            found += restore_links(folder, before)
        if found:
            self._index.refresh()
        if problem is not None:
            raise problem
        return list(dict.fromkeys(found))

    def to_json(self) -> dict[str, object]:
        """What another process needs to restore the entries."""
        return {
            "before": self.before,
            "searched": self._index.roots,
            "beyond": sorted(self._index.beyond),
        }


def is_new_environment(name: str, before: Entries) -> bool:
    """Whether a script activates an environment that a command has just created: all of it is the command's work."""
    plain = normalize_name(name)
    is_script = plain.startswith(ACTIVATE) and plain not in PROTECTED_FOLDERS
    return is_script and not any(normalize_name(other).startswith(ACTIVATE) for other in before)


def restore_links(folder: str, before: Entries) -> list[str]:
    """Create symlinks that are gone. Returns their paths."""
    found: list[str] = []
    for name, target in before.items():
        path = os.path.join(folder, name)
        with contextlib.suppress(FileExistsError, NotADirectoryError, FileNotFoundError):
            if target:
                with open_parent(path) as (opened, last):
                    os.symlink(target, last, dir_fd=opened)
                found.append(path)
    return found


def move_away(folder: int, name: str, quarantine: str) -> None:
    """Move an entry of an opened folder into a private folder, whatever it contains. Raises OSError."""
    give_rights(folder)
    try:
        with open_folder(quarantine, create=True) as opened:
            place = f"{len(os.listdir(opened))}-{name.lstrip('.')}"
            os.rename(name, place, src_dir_fd=folder, dst_dir_fd=opened)
    except OSError:  # on another file system, or a command has replaced it
        remove_entry(folder, name)


def remove_entry(folder: int, name: str) -> None:
    """Remove a file or a whole folder, however deep it is. Raises OSError."""
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if not is_folder_in(folder, current):
            os.unlink(current, dir_fd=folder)
            continue
        with open_inner(folder, current) as opened:
            give_rights(opened)
            for inner in os.listdir(opened):
                if is_folder_in(opened, inner):
                    waiting.append(f".parley-{secrets.token_hex(8)}")
                    os.rename(inner, waiting[-1], src_dir_fd=opened, dst_dir_fd=folder)
                else:
                    os.unlink(inner, dir_fd=opened)
        os.rmdir(current, dir_fd=folder)


def is_folder_in(folder: int, name: str) -> bool:
    return stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode)
