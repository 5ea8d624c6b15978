"""A folder within reach, one outside of it, and files as a session has them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from parley.workspace.base import Files, Scope
from parley.workspace.checkpoints import CheckpointStore
from parley.workspace.local import LocalFiles
from tests.helpers import remote_workspace


@contextmanager
def as_nobody(folder: Path) -> Iterator[None]:
    """Be a user without privileges who owns the folder. Who is none anyway stays as he is."""
    if os.geteuid() != 0:
        yield
        return
    for above in folder.parents[:-1]:
        above.chmod(above.stat().st_mode | 0o111)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


class WorkspaceHarness:
    def __init__(self, folder: Path) -> None:
        self.inside = folder / "inside"
        self.outside = folder / "outside"
        self.history = folder / "config" / "file-history" / "session"
        for made in (self.inside, self.outside):
            made.mkdir(exist_ok=True)
        self.reach = Scope(folders=(str(self.inside),))
        self._numbers = count(1)
        self.files: Files = self.restart()

    def restart(self, *, delete_history_at_end: bool = False) -> Files:
        """The session again, in another process."""
        if remote_workspace.is_remote():
            server = remote_workspace.server_of(self.inside, self.history.parents[1])
            remote = server.connect(self.inside, "session", keeps_history=not delete_history_at_end)
            self.files = remote.files
            return self.files
        self.files = LocalFiles(
            cwd=str(self.inside),
            checkpoints=CheckpointStore(self.history),
            new_id=lambda: f"{next(self._numbers):024d}",
            delete_history_at_end=delete_history_at_end,
        )
        return self.files

    def put(self, name: str, data: bytes) -> None:
        """Write as the model does: what is there is known."""
        path = str(self.inside / name)
        self.files.write(path, data, self.reach, replacing=self.files.peek(path, self.reach))

    def tree(self) -> dict[str, bytes]:
        """Every file inside and what it holds."""
        files = sorted(file for file in self.inside.rglob("*") if file.is_file())
        return {str(file.relative_to(self.inside)): file.read_bytes() for file in files}
