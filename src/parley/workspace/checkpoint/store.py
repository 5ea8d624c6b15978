"""What files were before we changed them, kept so that every change can be taken back.

A session has a folder of its own:

    <config>/file-history/<session>/index.jsonl             messages and changes, in their order
    <config>/file-history/<session>/<hash of the path>@v2   a file as it was, once
    <config>/file-history/<session>/tree-<hash>             what some file of the tree held (tree_snapshot.py)

A change is in the index before it happens, and its outcome after. So after a crash there
may be one without an outcome: whoever opens the history then looks at the file and
settles it (`unsettled`).

Not here: what to restore (plan.py), and changing files (local.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from parley.protocol.base import Struct
from parley.workspace import private_files

BELOW = 2
"""`file-history/<session>` in the config folder is ours."""
CHUNK_BYTES = 1 << 20
INDEX = "index.jsonl"
HALF_MADE = "copy.tmp"


class State(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file before a change."""

    sha256: str
    mode: int
    copy: str | None = None
    """The file in the history that holds it."""


class Message(Struct, frozen=True, kw_only=True, tag="message", tag_field="kind"):
    id: str


class Change(Struct, frozen=True, kw_only=True, tag="change", tag_field="kind"):
    path: str
    """The real one."""
    before: State | None
    """None: nothing was there."""
    after: str | None
    """The hash of what we made it; None: we took it away."""
    beside: str
    """The name of the half-written file, which a crash may leave behind."""
    call: str = ""
    """The id of the tool call that made it."""


class Outcome(Struct, frozen=True, kw_only=True, tag="outcome", tag_field="kind"):
    """Whether the change before this line has happened."""

    happened: bool


Row = Message | Change | Outcome


class Damaged(Exception):
    """The index cannot be read, so nobody knows what was changed."""


class Checkpoints:
    """The history of one session. Everything raises OSError if the disk refuses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.damage: str | None = None
        """Why old changes cannot be taken back."""
        self._rows: list[Message | Change] | None = None
        self._unsettled: Change | None = None
        self._unwritten: list[Row] = []
        self._changed_now: set[str] = set()
        """What was changed since the last message came in."""

    def rows(self) -> list[Message | Change]:
        """Messages and changes in their order, without those that did not happen."""
        if self._rows is None:
            self._rows = []
            try:
                self._load()
            except OSError:
                self._rows = None
                raise
        return self._rows

    def unsettled(self) -> Change | None:
        """The change of which nobody knows whether it has happened: the process broke off in the middle of it."""
        self.rows()
        return self._unsettled

    def begin(self, message_id: str) -> None:
        """A message came in. What cannot be written now is written with the next change."""
        self._changed_now.clear()
        with suppress(OSError):
            self._add(Message(id=message_id), durable=False)

    def keep(self, path: str, opened: int, *, always: bool = False) -> State:
        """The state of a file that is about to change.

        Its content is copied; unless `always`, not if we wrote it ourselves since the last message.
        """
        mode = os.fstat(opened).st_mode & 0o7777
        if path in self._changed_now and not always:
            ours = self.last(path)
            seen = digest(opened)
            if ours is not None and ours.after == seen:
                return State(sha256=seen, mode=mode)
        return self._copy(path, opened, mode)

    def store(self, opened: int) -> State:
        """The state of a file that may change. Its content is copied unless the same is there already."""
        mode = os.fstat(opened).st_mode & 0o7777
        sha256 = digest(opened)
        if not os.path.lexists(self.folder / f"tree-{sha256}"):
            sha256 = self._half_make(opened, durable=False)
            self._name(f"tree-{sha256}")
        return State(sha256=sha256, mode=mode, copy=f"tree-{sha256}")

    def add(self, change: Change) -> None:
        """From here on the change may happen."""
        try:
            self._add(change, durable=True)
        except OSError:
            self.settle(happened=False)
            raise
        self._changed_now.add(change.path)

    def add_done(self, changes: Iterable[Change]) -> None:
        """Changes that have happened."""
        self._add(*(row for change in changes for row in (change, Outcome(happened=True))), durable=True)

    def settle(self, *, happened: bool) -> None:
        """Tell what became of the change that was added last."""
        with suppress(OSError):
            self._add(Outcome(happened=happened), durable=False)

    def last(self, path: str) -> Change | None:
        """The last change of a file."""
        return next((row for row in reversed(self.rows()) if isinstance(row, Change) and row.path == path), None)

    def content(self, state: State) -> bytes:
        """What a file was. Raises Damaged if it was not kept as it was."""
        data = None
        if state.copy is not None:
            data = private_files.read(self.folder / os.path.basename(state.copy), below=BELOW)
        if data is None or fingerprint(data) != state.sha256:
            raise Damaged(f"the copy {state.copy} is missing or broken")
        return data

    def inherit(self, older: Checkpoints) -> None:
        """Begin with the history of another session, of which this one is a fork."""
        if not (older.folder / INDEX).exists():
            return
        with (
            private_files.opened_folder(older.folder, below=BELOW, to_list=True) as (theirs, owner),
            private_files.opened_folder(self.folder, below=BELOW, make=True) as (ours, _),
        ):
            for name in os.listdir(theirs):
                if name not in (INDEX, HALF_MADE):
                    path = older.folder / name
                    status = os.stat(name, dir_fd=theirs, follow_symlinks=False)
                    private_files.check(status, path, owner, writes=False)
                    # A copy is never written to again, so both may have the same.
                    try:
                        os.link(name, name, src_dir_fd=theirs, dst_dir_fd=ours, follow_symlinks=False)
                    except OSError:
                        private_files.write(self.folder / name, private_files.read(path, below=BELOW), below=BELOW)
        private_files.write(self.folder / INDEX, private_files.read(older.folder / INDEX, below=BELOW), below=BELOW)

    def forget(self) -> None:
        """Delete the whole history."""
        with suppress(FileNotFoundError):
            with private_files.opened_folder(self.folder, below=BELOW, to_list=True) as (folder, _):
                for name in os.listdir(folder):
                    os.unlink(name, dir_fd=folder)
            self.folder.rmdir()

    # The index.

    def _load(self) -> None:
        path = self.folder / INDEX
        try:
            text = private_files.read(path, below=BELOW)
        except FileNotFoundError:
            text = b""
        whole, _, torn = text.rpartition(b"\n")
        if torn:
            file = private_files.open_file(path, os.O_WRONLY, below=BELOW)
            try:
                os.ftruncate(file, len(text) - len(torn))
            finally:
                os.close(file)
        for number, line in enumerate(whole.split(b"\n") if whole else [], 1):
            try:
                self._fold(msgspec.json.decode(line, type=Row))
            except msgspec.DecodeError:
                self.damage = f"line {number} of {path} cannot be read"
        for row in self._unwritten:
            self._fold(row)

    def _fold(self, row: Row) -> None:
        rows = self.rows()
        if not isinstance(row, Outcome):
            rows.append(row)
        elif not row.happened:
            rows[:] = [old for old in rows if old is not self._unsettled]
        if not isinstance(row, Message):
            self._unsettled = row if isinstance(row, Change) else None

    def _add(self, *rows: Row, durable: bool) -> None:
        self._unwritten += rows
        if self._rows is None:
            self.rows()
        else:
            for row in rows:
                self._fold(row)
        lines = b"".join(msgspec.json.encode(row) + b"\n" for row in self._unwritten)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        index = private_files.open_file(self.folder / INDEX, flags, below=BELOW)
        try:
            end = os.lseek(index, 0, os.SEEK_END)
            try:
                write_all(index, lines)
            except OSError:
                os.ftruncate(index, end)
                raise
            self._unwritten.clear()
            if durable:
                os.fdatasync(index)
        finally:
            os.close(index)

    # Copies.

    def _copy(self, path: str, opened: int, mode: int) -> State:
        sha256 = self._half_make(opened, durable=True)
        known = {state.copy: state.sha256 for state in self._states(path) if state.copy is not None}
        name = next((name for name, content in known.items() if content == sha256), None)
        if name is None:
            name = f"{fingerprint(path.encode())[:16]}@v{len(known) + 1}"
            self._name(name)
        else:
            private_files.remove(self.folder / HALF_MADE, below=BELOW)
        return State(sha256=sha256, mode=mode, copy=name)

    def _half_make(self, opened: int, *, durable: bool) -> str:
        """Copy a file to where it does not count yet; the hash of what was copied."""
        import hashlib

        hashed = hashlib.sha256()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        copy = private_files.open_file(self.folder / HALF_MADE, flags, below=BELOW)
        try:
            for part in parts(opened):
                hashed.update(part)
                write_all(copy, part)
            if durable:
                os.fdatasync(copy)
        finally:
            os.close(copy)
        return hashed.hexdigest()

    def _name(self, name: str) -> None:
        """From here on the copy counts, under this name."""
        with private_files.opened_folder(self.folder, below=BELOW) as (folder, _):
            os.rename(HALF_MADE, name, src_dir_fd=folder, dst_dir_fd=folder)

    def _states(self, path: str) -> list[State]:
        changes = (row for row in self.rows() if isinstance(row, Change) and row.path == path)
        return [change.before for change in changes if change.before is not None]


def parts(opened: int) -> Iterator[bytes]:
    """The content of an opened file, from its beginning."""
    os.lseek(opened, 0, os.SEEK_SET)
    while part := os.read(opened, CHUNK_BYTES):
        yield part


def digest(opened: int) -> str:
    """The hash of an opened file's content."""
    import hashlib

    hashed = hashlib.sha256()
    for part in parts(opened):
        hashed.update(part)
    return hashed.hexdigest()


def fingerprint(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
