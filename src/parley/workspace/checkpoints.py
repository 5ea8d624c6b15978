"""The file history of a session: what files contained before each change, and what a rewind restores.

Each session has a folder of its own:

    <config>/file-history/<session>/index.jsonl             messages and changes, in order
    <config>/file-history/<session>/<hash of the path>@v2   an earlier version of a file
    <config>/file-history/<session>/tree-<hash>             the content of a file of the tree (tree_snapshot.py)

A change is written to the index before it is made, and its outcome afterwards. After a crash the last change may have
no outcome (`unsettled`); the next process compares the file and settles it.

What to restore is decided by pure functions from the history and the current hashes (`find_goals`).

See also: `local.py` changes and restores files.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import field

from parley.protocol.base import Struct
from parley.workspace import private_files
from parley.workspace.base import RewindDiff, RewindReport

BELOW = 2
"""The folders below the configuration folder that are ours: `file-history/<session>`."""
CHUNK_BYTES = 1 << 20
INDEX = "index.jsonl"
TEMP_COPY = "copy.tmp"


class FileState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file before a change."""

    sha256: str
    mode: int
    copy: str | None = None
    """The name of the copy in the history."""


class MessageRow(Struct, frozen=True, kw_only=True, tag="message", tag_field="kind"):
    id: str


class ChangeRow(Struct, frozen=True, kw_only=True, tag="change", tag_field="kind"):
    path: str
    """The real path."""
    before: FileState | None
    """None if the file did not exist."""
    after: str | None
    """The hash of the new content; None if the file was deleted."""
    temp_name: str = field(name="beside")
    """The name of the temporary file, which may remain after a crash."""
    call: str = ""
    """The id of the tool call that made the change."""


class OutcomeRow(Struct, frozen=True, kw_only=True, tag="outcome", tag_field="kind"):
    """Whether the change in the previous row was made."""

    happened: bool


Row = MessageRow | ChangeRow | OutcomeRow


class CheckpointDamaged(Exception):
    """The index or a copy cannot be read."""


class CheckpointStore:
    """The history of one session. All methods raise OSError if the disk fails."""

    _index: int | None = None
    """The index, opened for appending. It stays open, because every message is recorded."""

    def __init__(self, folder: Path) -> None:
        self.use(folder)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the index. The next record opens it again."""
        if self._index is not None:
            os.close(self._index)
            self._index = None

    def use(self, folder: Path) -> None:
        """Continue with the history of another session."""
        self.close()
        self.folder = folder
        self.damage: str | None = None
        """Why earlier changes cannot be rewound; None if they can."""
        self._rows: list[MessageRow | ChangeRow] | None = None
        self._unsettled: ChangeRow | None = None
        self._unwritten: list[Row] = []
        self._changed_now: set[str] = set()
        """The paths changed since the last message."""

    def rows(self) -> list[MessageRow | ChangeRow]:
        """Messages and changes in order, without changes that were not made."""
        if self._rows is None:
            self._rows = []
            try:
                self._load()
            except OSError:
                self._rows = None
                raise
        return self._rows

    def unsettled(self) -> ChangeRow | None:
        """The last change if its outcome is unknown, because the process ended during it."""
        self.rows()
        return self._unsettled

    def begin(self, message_id: str) -> None:
        """Record a message. If the write fails, it is repeated with the next change."""
        self._changed_now.clear()
        with suppress(OSError):
            self._add(MessageRow(id=message_id), durable=False)

    def save_state(self, path: str, opened: int, *, always: bool = False) -> FileState:
        """Save the state of a file that is about to change.

        The content is copied. Unless `always` is set, our own content from the current message is not copied.
        """
        mode = os.fstat(opened).st_mode & 0o7777
        if path in self._changed_now and not always:
            ours = self.last(path)
            seen = hash_file(opened)
            if ours is not None and ours.after == seen:
                return FileState(sha256=seen, mode=mode)
        return self._copy(path, opened, mode)

    def store(self, opened: int) -> FileState:
        """Save the state of a file that may change. Its content is copied unless the history already has it."""
        mode = os.fstat(opened).st_mode & 0o7777
        sha256 = hash_file(opened)
        if not os.path.lexists(self.folder / f"tree-{sha256}"):
            sha256 = self._write_temp_copy(opened, durable=False)
            private_files.rename(self.folder / TEMP_COPY, f"tree-{sha256}", below=BELOW)
        return FileState(sha256=sha256, mode=mode, copy=f"tree-{sha256}")

    def add(self, change: ChangeRow) -> None:
        """Record a change before it is made."""
        try:
            self._add(change, durable=True)
        except OSError:
            self.settle(happened=False)
            raise
        self._changed_now.add(change.path)

    def add_done(self, changes: Iterable[ChangeRow]) -> None:
        """Record changes that were already made."""
        self._add(*(row for change in changes for row in (change, OutcomeRow(happened=True))), durable=True)

    def settle(self, *, happened: bool) -> None:
        """Record the outcome of the last added change."""
        with suppress(OSError):
            self._add(OutcomeRow(happened=happened), durable=False)

    def last(self, path: str) -> ChangeRow | None:
        """The last change of a file."""
        return next((row for row in reversed(self.rows()) if isinstance(row, ChangeRow) and row.path == path), None)

    def content(self, state: FileState) -> bytes:
        """The content of a state. Raises CheckpointDamaged if the copy is missing or altered."""
        data = None
        if state.copy is not None:
            data = private_files.read(self.folder / os.path.basename(state.copy), below=BELOW)
        if data is None or hash_bytes(data) != state.sha256:
            raise CheckpointDamaged(f"the copy {state.copy} is missing or damaged")
        return data

    def inherit(self, older: CheckpointStore) -> None:
        """Copy the history of the session that this one was forked from."""
        if not (older.folder / INDEX).exists():
            return
        with (
            private_files.open_folder(older.folder, below=BELOW, to_list=True) as (theirs, owner),
            private_files.open_folder(self.folder, below=BELOW, make=True) as (ours, _),
        ):
            for name in os.listdir(theirs):
                if name not in (INDEX, TEMP_COPY):
                    path = older.folder / name
                    status = os.stat(name, dir_fd=theirs, follow_symlinks=False)
                    private_files.check_regular(status, path, owner, writes=False)
                    # Copies are never modified, so both histories can share the file.
                    try:
                        os.link(name, name, src_dir_fd=theirs, dst_dir_fd=ours, follow_symlinks=False)
                    except OSError:
                        private_files.write(self.folder / name, private_files.read(path, below=BELOW), below=BELOW)
        private_files.write(self.folder / INDEX, private_files.read(older.folder / INDEX, below=BELOW), below=BELOW)

    def forget(self) -> None:
        """Delete the whole history."""
        self.close()
        with suppress(FileNotFoundError):
            with private_files.open_folder(self.folder, below=BELOW, to_list=True) as (folder, _):
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
        complete, _, partial = text.rpartition(b"\n")
        if partial:
            file = private_files.open_file(path, os.O_WRONLY, below=BELOW)
            try:
                os.ftruncate(file, len(text) - len(partial))
            finally:
                os.close(file)
        for number, line in enumerate(complete.split(b"\n") if complete else [], 1):
            try:
                self._fold(msgspec.json.decode(line, type=Row))
            except msgspec.DecodeError:
                self.damage = f"line {number} of {path} cannot be read"
        for row in self._unwritten:
            self._fold(row)

    def _fold(self, row: Row) -> None:
        rows = self.rows()
        if not isinstance(row, OutcomeRow):
            rows.append(row)
        elif not row.happened:
            rows[:] = [old for old in rows if old is not self._unsettled]
        if not isinstance(row, MessageRow):
            self._unsettled = row if isinstance(row, ChangeRow) else None

    def _add(self, *rows: Row, durable: bool) -> None:
        self._unwritten += rows
        if self._rows is None:
            self.rows()
        else:
            for row in rows:
                self._fold(row)
        lines = b"".join(msgspec.json.encode(row) + b"\n" for row in self._unwritten)
        index, size = self._open_index()
        try:
            private_files.write_all(index, lines)
        except OSError:
            os.ftruncate(index, size)
            raise
        self._unwritten.clear()
        if durable:
            os.fdatasync(index)

    def _open_index(self) -> tuple[int, int]:
        """The index, and its size."""
        if self._index is not None:
            status = os.fstat(self._index)
            if status.st_nlink:
                return self._index, status.st_size
            self.close()  # it was deleted
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._index = private_files.open_file(self.folder / INDEX, flags, below=BELOW)
        return self._index, os.fstat(self._index).st_size

    # Copies.

    def _copy(self, path: str, opened: int, mode: int) -> FileState:
        sha256 = self._write_temp_copy(opened, durable=True)
        known = {state.copy: state.sha256 for state in self._states(path) if state.copy is not None}
        name = next((name for name, content in known.items() if content == sha256), None)
        if name is None:
            name = f"{hash_bytes(path.encode())[:16]}@v{len(known) + 1}"
            private_files.rename(self.folder / TEMP_COPY, name, below=BELOW)
        else:
            private_files.remove(self.folder / TEMP_COPY, below=BELOW)
        return FileState(sha256=sha256, mode=mode, copy=name)

    def _write_temp_copy(self, opened: int, *, durable: bool) -> str:
        """Copy a file to the temporary name and return the hash of the copy."""
        hashed = hashlib.sha256()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        copy = private_files.open_file(self.folder / TEMP_COPY, flags, below=BELOW)
        try:
            for part in read_chunks(opened):
                hashed.update(part)
                private_files.write_all(copy, part)
            if durable:
                os.fdatasync(copy)
        finally:
            os.close(copy)
        return hashed.hexdigest()

    def _states(self, path: str) -> list[FileState]:
        changes = (row for row in self.rows() if isinstance(row, ChangeRow) and row.path == path)
        return [change.before for change in changes if change.before is not None]


def read_chunks(opened: int) -> Iterator[bytes]:
    """Yield the content of an opened file from its start."""
    os.lseek(opened, 0, os.SEEK_SET)
    while part := os.read(opened, CHUNK_BYTES):
        yield part


def hash_file(opened: int) -> str:
    """The hash of an opened file's content."""
    hashed = hashlib.sha256()
    for part in read_chunks(opened):
        hashed.update(part)
    return hashed.hexdigest()


def hash_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


COUNTED_BYTES = 16 << 20
"""In larger files, all lines are counted as inserted and deleted."""
DIFF_BYTES = 256 << 10
"""Larger files have no diff, which can take quadratic time."""
Verdict = Literal["as it was", "restore", "leave alone"]


class RestoreGoal(Struct, frozen=True, kw_only=True):
    """A file that was changed since the message, and its state at that time."""

    path: str
    target: FileState | None
    """The state to restore; None if the file did not exist."""
    ours: str | None
    """The hash of our last version; None if we deleted it."""

    def verdict(self, current_sha256: str | None) -> Verdict:
        """What to do with the file in its current state. Changes by others are never overwritten."""
        if current_sha256 == (None if self.target is None else self.target.sha256):
            return "as it was"
        # If the file does not exist, nothing can be lost.
        if current_sha256 is None or current_sha256 == self.ours:
            return "restore"
        return "leave alone"


def find_goals(rows: Sequence[MessageRow | ChangeRow], message_id: str) -> list[RestoreGoal] | None:
    """The files changed since a message arrived, in the order of their first change; None if the message is unknown."""
    start = next((at for at, row in enumerate(rows) if isinstance(row, MessageRow) and row.id == message_id), None)
    if start is None:
        return None
    first: dict[str, ChangeRow] = {}
    last: dict[str, ChangeRow] = {}
    for row in rows[start:]:
        if isinstance(row, ChangeRow):
            first.setdefault(row.path, row)
            last[row.path] = row
    return [RestoreGoal(path=path, target=first[path].before, ours=last[path].after) for path in first]


class RewindTally:
    """Collects the outcome of a rewind, file by file."""

    def __init__(self, with_diffs: bool = False) -> None:
        self._with_diffs = with_diffs
        self._diffs: list[RewindDiff] = []
        self._restored: list[str] = []
        self._left: dict[str, str] = {}
        self._links = self._insertions = self._deletions = 0

    def restore(self, path: str, current: bytes | None, restored: bytes | None) -> None:
        insertions, deletions = line_counts(current, restored)
        self._restored.append(path)
        self._insertions += insertions
        self._deletions += deletions
        if self._with_diffs:
            self._diffs.append(make_diff(path, current, restored))

    def leave(self, path: str, reason: str, *, is_link: bool = False) -> None:
        if self._with_diffs:
            self._diffs.append(RewindDiff(path=path, status="skipped", reason=reason))
        self._left[path] = reason
        self._links += is_link

    def report(self) -> RewindReport:
        left = "; ".join(f"{path} ({reason})" for path, reason in self._left.items())
        return RewindReport(
            possible=bool(self._restored) or not self._left,
            reason=f"Not rewound: {left}" if left else "",
            files=tuple(self._restored),
            left_alone=tuple(self._left),
            skipped_links=self._links,
            insertions=self._insertions,
            deletions=self._deletions,
            diffs=tuple(self._diffs),
        )


def line_counts(current: bytes | None, restored: bytes | None) -> tuple[int, int]:
    """How many lines a restore inserts and deletes. A line that only moves is not counted."""
    old, new = current or b"", restored or b""
    if max(len(old), len(new)) > COUNTED_BYTES:
        return count_lines(new), count_lines(old)
    old_lines, new_lines = Counter(old.splitlines(True)), Counter(new.splitlines(True))
    return (new_lines - old_lines).total(), (old_lines - new_lines).total()


def make_diff(path: str, current: bytes | None, restored: bytes | None) -> RewindDiff:
    """What a restore does to a file."""
    from difflib import unified_diff

    status: Literal["modified", "added", "deleted"] = "modified"
    if current is None or restored is None:
        status = "added" if current is None else "deleted"
    old, new = current or b"", restored or b""
    if max(len(old), len(new)) > DIFF_BYTES or b"\0" in old or b"\0" in new:
        return RewindDiff(path=path, status=status)
    before, after = (data.decode(errors="replace").splitlines(keepends=True) for data in (old, new))
    lines = unified_diff(before, after, path, path)
    diff = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return RewindDiff(path=path, status=status, diff=diff)


def count_lines(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
