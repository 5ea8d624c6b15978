"""Leave nothing of the sandbox behind in the user's folders, even if the engine is killed.

A placeholder is an empty folder that gives a mask a mount point. Removing it removes the mask in every sandbox that
uses it. So each sandbox holds a shared lock on a record of its writable folder, and only one that is alone with the
record removes the placeholders that are written there. The next sandbox in the folder removes what is left.

A second process waits for the end of the engine and of the sandbox, and cleans up in their place (`main`). It runs in a
bare interpreter and uses only the standard library.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import shutil
import socket
import sys
import time
from typing import Any

from parley.workspace import private_files
from parley.workspace.sandbox.contents import ProtectedContents
from parley.workspace.sandbox.entries import ProtectedEntries
from parley.workspace.sandbox.folders import FolderIndex, open_parent

ALONE_SECONDS = 2.0
"""How long the cleaner of a killed engine waits for its locks, and for other cleaners."""
GONE_SECONDS = 30.0
"""How long it waits for processes that were killed."""


class PlaceholderRecord:
    """The placeholders in one writable folder, of this sandbox and others. Holding it keeps them in place."""

    def __init__(self, records: str, root: str) -> None:
        """Raises OSError."""
        self._root = root
        name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(os.path.join(records, name), flags, 0o600)

    def hold(self) -> None:
        """Remove what is left of sandboxes that were killed, and keep what is created from now on. Raises OSError."""
        self._remove_if_alone()
        private_files.lock(self._file, shared=True)

    def create(self, path: str) -> bool:
        """Create a placeholder. Returns False if the path exists by now. Raises OSError."""
        try:
            os.mkdir(path, 0o755)
        except FileExistsError:
            return False
        os.write(self._file, json.dumps([path, os.lstat(path).st_ino]).encode() + b"\n")
        return True

    def release(self) -> None:
        """Remove the placeholders, unless another sandbox uses them."""
        if self._file >= 0:
            self._remove_if_alone()
            os.close(self._file)
            self._file = -1

    def release_when_alone(self) -> None:
        """The same for an engine that was killed and may not be quite gone. Does not wait long for other sandboxes."""
        deadline = time.monotonic() + ALONE_SECONDS
        while not self._remove_if_alone() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.close(self._file)

    def _remove_if_alone(self) -> bool:
        try:
            if not private_files.lock(self._file, timeout_seconds=0):
                return False
        except OSError:
            return False
        for line in reversed(os.pread(self._file, 1 << 20, 0).splitlines()):
            with contextlib.suppress(OSError, ValueError):
                path, inode = json.loads(line)
                if not path.startswith(self._root.rstrip("/") + "/"):
                    continue  # a command that may write to our folder has added it
                with open_parent(path) as (folder, last):
                    if os.lstat(last, dir_fd=folder).st_ino == inode:
                        os.rmdir(last, dir_fd=folder)  # fails if it is not an empty folder
        os.ftruncate(self._file, 0)
        return True


class ProtectedFiles:
    """What commands must leave as it is, and what no mount protects."""

    def __init__(self, entries: ProtectedEntries, contents: ProtectedContents) -> None:
        self._entries = entries
        self._contents = contents

    def look(self) -> None:
        """Find protected names that have appeared."""
        self._entries.look()

    def save(self) -> None:
        """Take the current contents, and the names that were found last, as the state to restore."""
        self._entries.accept()
        self._contents.save()

    def accept(self, path: str) -> bool:
        """Take over a change of the user's, which must not be undone. Returns whether the path is protected."""
        is_protected = self._entries.accept_change(path)
        if is_protected:
            self._contents.accept(path)
        return is_protected

    def restore(self, quarantine: str) -> list[str]:
        """Returns the paths that were restored. Raises OSError."""
        changed = self._contents.restore(quarantine)
        return list(dict.fromkeys([*changed, *self._entries.restore(quarantine)]))

    def to_json(self) -> dict[str, Any]:
        return {**self._entries.to_json(), "saved": self._contents.saved, "parents": self._contents.folders}

    @classmethod
    def from_json(cls, job: dict[str, Any]) -> ProtectedFiles:
        entries = ProtectedEntries(FolderIndex(job["searched"], job["beyond"]))
        entries.before = job["before"]
        contents = ProtectedContents(())
        contents.saved, contents.folders = job["saved"], job["parents"]
        return cls(entries, contents)


def encode_job(folders: dict[str, str], roots: tuple[str, ...], watched: ProtectedFiles) -> bytes:
    """What `main` has to do. `folders`: where `records`, `temp` and `quarantine` are."""
    return json.dumps({**folders, "roots": roots, **watched.to_json()}).encode()


def main(alive: int, job_file: int) -> None:
    """Clean up when no process holds the other end of the socket `alive`: the engine and the sandbox are gone."""
    with open(job_file, "rb") as file:
        job: dict[str, Any] = json.load(file)
    os.chdir("/")
    hangup = select.poll()
    hangup.register(alive, 0)
    hangup.poll()
    with contextlib.suppress(OSError):
        _, first_processes, _, _ = socket.recv_fds(socket.socket(fileno=alive), 1, 1, socket.MSG_DONTWAIT)
        for process in first_processes:  # the last of the sandbox to end
            select.select([process], [], [], GONE_SECONDS)
    with contextlib.suppress(OSError):
        ProtectedFiles.from_json(job).restore(job["quarantine"])
    for root in job["roots"]:
        with contextlib.suppress(OSError):
            PlaceholderRecord(job["records"], root).release_when_alone()
    shutil.rmtree(job["temp"], ignore_errors=True)
    sys.exit(0)
