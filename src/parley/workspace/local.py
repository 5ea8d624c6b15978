"""Read, write and rewind files on this machine: the implementation of `Files`.

Every call opens its file through descriptors (safe_open.py). A change is checkpointed first (checkpoints.py) and
made atomically. A snapshot has the status of a file, so that a change by others is noticed later. Safe to
call from threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, TypeVar

from parley.errors import ToolError
from parley.workspace import safe_open
from parley.workspace.base import FileSnapshot, NotWritten, RewindReport, Scope, Writer
from parley.workspace.checkpoints import (
    ChangeRow,
    CheckpointDamaged,
    CheckpointStore,
    FileState,
    RestoreGoal,
    RewindTally,
    find_goals,
    hash_bytes,
)
from parley.workspace.safe_open import FileLocation, Pins, Swapped

if TYPE_CHECKING:
    from parley.workspace.tree_snapshot import TreeSnapshot


UNKNOWN_MESSAGE = "No file checkpoint found for this message."


T = TypeVar("T")
CHUNK_BYTES = 1 << 20
LARGEST_BYTES = 1 << 30
"""Larger files are only read with a limit."""
NO_WAIT: int | None = getattr(os, "RWF_NOWAIT", None)
"""Linux: fail instead of waiting for a disk."""


class LocalFiles:
    """The files of this machine, with a history of our changes."""

    def __init__(
        self,
        *,
        cwd: str,
        checkpoints: CheckpointStore,
        new_id: Callable[[], str],
        tree: TreeSnapshot | None = None,
        delete_history_at_end: bool = False,
        pins: Pins | None = None,
    ) -> None:
        self.watches_commands = tree is not None
        self._tree = tree
        self._cwd = cwd
        self._checkpoints = checkpoints
        self._new_id = new_id
        self._delete_history_at_end = delete_history_at_end
        self._pins = pins or Pins()
        self._lock = RLock()
        self._settled = False
        self.on_change: Callable[[str], None] = lambda path: None
        """Called with the path of each file that we changed."""

    def read(self, path: str, scope: Scope, limit_bytes: int | None = None) -> FileSnapshot:
        found = self.peek(path, scope, limit_bytes)
        if found is None:
            raise safe_open.not_found_error(path, scope, self._pins, self._cwd)
        return found

    def read_cached(self, path: str, scope: Scope, limit_bytes: int) -> FileSnapshot | None:
        return self._read(path, scope, lambda location: snapshot_cached(location, limit_bytes))

    def peek(self, path: str, scope: Scope, limit_bytes: int | None = None) -> FileSnapshot | None:
        return self._read(path, scope, lambda location: snapshot(location, limit_bytes))

    def write(
        self, path: str, data: bytes, scope: Scope, *, replacing: FileSnapshot | None, by: Writer | None = None
    ) -> FileSnapshot:
        def act() -> FileSnapshot:
            new = replacing is None
            with safe_open.find(path, scope, self._pins, to_write=True, make_folders=new) as location:
                check_writable(location)
                check_unchanged(location, replacing)
                temp_name = self._temp_name()
                with self._checkpointed(location, hash_bytes(data), temp_name, call=scope.call):
                    if by is None:
                        status = safe_open.replace_file(
                            location, data, temp_name, lambda: check_unchanged(location, replacing)
                        )
                        return make_snapshot(location.path, data, status)
                    by(location.path)
                    found = find_written(location, replacing, data)
                # Record what another program made of a change, so that the change can be rewound.
                if found.data != data:
                    before, after = FileState(sha256=hash_bytes(data), mode=found.mode), hash_bytes(found.data)
                    self._checkpoints.add(
                        ChangeRow(
                            path=found.path, before=before, after=after, temp_name=self._temp_name(), call=scope.call
                        )
                    )
                    self._checkpoints.settle(happened=True)
                return found

        with self._lock, safe_open.translate_os_errors(f"{path} cannot be written"):
            return follow_and_act(act)

    def changed_by(self, call: str) -> list[str] | None:
        with self._lock:
            try:
                self._settle()
                rows = self._checkpoints.rows()
            except OSError:
                return None
            if self._checkpoints.damage is not None:
                return None
            return [row.path for row in rows if isinstance(row, ChangeRow) and row.call == call]

    def use_history(self, folder: Path) -> None:
        """Record further changes in the history of another session."""
        with self._lock:
            self._checkpoints.use(folder)
            self._settled = False

    def begin_message(self, user_message_id: str) -> None:
        with self._lock:
            # If this fails, it is tried again before the first change, which then reports the error.
            with suppress(OSError):
                self._settle()
            self._checkpoints.begin(user_message_id)

    def rewind(self, user_message_id: str, *, dry_run: bool, with_diffs: bool = False) -> RewindReport:
        with self._lock:
            try:
                self._settle()
            except OSError as exc:
                return RewindReport(
                    possible=False, reason=f"The file history cannot be read: {safe_open.describe_os_error(exc)}."
                )
            if self._checkpoints.damage is not None:
                return RewindReport(possible=False, reason=f"The file history is damaged: {self._checkpoints.damage}.")
            found = find_goals(self._checkpoints.rows(), user_message_id)
            if found is None:
                return RewindReport(possible=False, reason=UNKNOWN_MESSAGE)
            tally = RewindTally(with_diffs)
            for goal in found:
                self._rewind_file(goal, tally, dry_run)
            return tally.report()

    def before_command(self) -> None:
        message = "The command was not run, because the working tree could not be saved"
        if self._tree is not None:
            with self._lock, safe_open.translate_os_errors(message):
                self._settle()
                self._tree.save()

    def after_command(self) -> None:
        if self._tree is not None:
            with self._lock, suppress(OSError):
                self._tree.compare()

    def close(self) -> None:
        with self._lock, suppress(OSError):
            self._checkpoints.close()
            if self._delete_history_at_end:
                self._checkpoints.forget()

    def _read(
        self, path: str, scope: Scope, take: Callable[[FileLocation], FileSnapshot | None]
    ) -> FileSnapshot | None:
        def act() -> FileSnapshot | None:
            try:
                with safe_open.find(path, scope, self._pins) as location:
                    return take(location)
            except FileNotFoundError:
                return None

        with safe_open.translate_os_errors(f"{path} cannot be read"):
            return follow_and_act(act)

    # Changing.

    def _temp_name(self) -> str:
        """The name of a temporary file."""
        return f".parley-{self._new_id()}.tmp"

    @contextmanager
    def _checkpointed(
        self, location: FileLocation, after: str | None, temp_name: str, *, copy_always: bool = False, call: str = ""
    ) -> Iterator[None]:
        """Checkpoint the file, then run the block. Records the outcome of the change."""
        history = self._checkpoints
        with safe_open.translate_os_errors(
            f"{location.path} was not changed, because its checkpoint could not be saved"
        ):
            self._settle()
            before = None
            if location.status() is not None:
                opened = location.open()
                try:
                    before = history.save_state(location.path, opened, always=copy_always)
                finally:
                    os.close(opened)
            history.add(ChangeRow(path=location.path, before=before, after=after, temp_name=temp_name, call=call))
        happened = False
        try:
            yield
            happened = True
        finally:
            history.settle(happened=happened)
            if happened:
                self.on_change(location.path)

    def _settle(self) -> None:
        """Find out whether the last change of an interrupted process was made. Raises OSError."""
        if self._settled:
            return
        change = self._checkpoints.unsettled()
        if change is not None:
            with suppress(Swapped, FileNotFoundError), safe_open.at(change.path) as location:
                os.unlink(change.temp_name, dir_fd=location.folder)
            before = None if change.before is None else change.before.sha256
            self._checkpoints.settle(happened=self._hash_at(change.path) != before)
        self._settled = True

    # Rewinding.

    def _rewind_file(self, goal: RestoreGoal, tally: RewindTally, dry_run: bool) -> None:
        """Restore one file or skip it, and record which in the tally."""
        try:
            current = snapshot_at(goal.path)
            verdict = goal.verdict(None if current is None else hash_bytes(current.data))
            if verdict == "leave alone":
                tally.leave(goal.path, "another program has changed it")
            elif verdict == "restore":
                target = None if goal.target is None else self._checkpoints.content(goal.target)
                if not dry_run:
                    self._restore(goal, target, current)
                tally.restore(goal.path, None if current is None else current.data, target)
        except Swapped:
            tally.leave(goal.path, "it was replaced by a symlink", is_link=True)
        except OSError as exc:
            tally.leave(goal.path, safe_open.describe_os_error(exc))
        except (ToolError, CheckpointDamaged) as exc:
            tally.leave(goal.path, str(exc))

    def _restore(self, goal: RestoreGoal, target: bytes | None, current: FileSnapshot | None) -> None:
        mode = None if goal.target is None else goal.target.mode
        after = None if goal.target is None else goal.target.sha256
        temp_name = self._temp_name()
        with (
            safe_open.at(goal.path, make_folders=target is not None) as location,
            self._checkpointed(location, after, temp_name, copy_always=True),
        ):
            if target is None:
                check_unchanged(location, current)
                safe_open.remove_file(location)
            else:
                safe_open.replace_file(location, target, temp_name, lambda: check_unchanged(location, current), mode)

    def _hash_at(self, path: str) -> str | None:
        try:
            found = snapshot_at(path)
        except (Swapped, ToolError):
            return "something else"
        return None if found is None else hash_bytes(found.data)


def find_written(location: FileLocation, replaced: FileSnapshot | None, data: bytes) -> FileSnapshot:
    """The file after another program has written it. Raises NotWritten."""
    try:
        found = snapshot(location)
    except FileNotFoundError:
        raise NotWritten("the file was not created") from None
    if replaced is not None and found.data == replaced.data != data:
        raise NotWritten("the file was not saved")
    return found


def follow_and_act(act: Callable[[], T]) -> T:
    """Call `act`, again if the path changes while it is resolved."""
    for _ in range(safe_open.TRIES):
        try:
            return act()
        except Swapped:
            continue
    raise ToolError("The path cannot be resolved: its symlinks form a loop, or it keeps changing.")


def snapshot(location: FileLocation, limit_bytes: int | None = None) -> FileSnapshot:
    """Raises FileNotFoundError, ToolError, Swapped and OSError."""
    descriptor = location.open()
    with open(descriptor, "rb", buffering=0) as file:
        # Get the status first: if the file changes during the read, a later comparison fails.
        status = os.fstat(descriptor)
        if limit_bytes is None and status.st_size > LARGEST_BYTES:
            raise ToolError(
                f"{location.path} is too large to read as a whole: {status.st_size} bytes, at most {LARGEST_BYTES}."
            )
        data = file.read() if limit_bytes is None else read_beginning(file.read, limit_bytes, status.st_size)
    return make_snapshot(location.path, data, status)


def snapshot_cached(location: FileLocation, limit_bytes: int) -> FileSnapshot | None:
    """The same, if the kernel has the whole content in memory and it is not longer; otherwise None."""
    descriptor = location.open()
    try:
        status = os.fstat(descriptor)
        data = read_cached(descriptor, status.st_size) if status.st_size <= limit_bytes else None
    finally:
        os.close(descriptor)
    return None if data is None else make_snapshot(location.path, data, status)


def read_cached(descriptor: int, size: int) -> bytes | None:
    if NO_WAIT is None:
        return None
    data = bytearray(size + 1)
    try:
        count = os.preadv(descriptor, [data], 0, NO_WAIT)
    except OSError:  # it is on the disk, or the file system cannot tell
        return None
    return bytes(data[:size]) if count == size else None


def snapshot_at(path: str) -> FileSnapshot | None:
    """Snapshot exactly this real path. Raises Swapped if the path contains a symlink, ToolError, OSError."""
    try:
        with safe_open.at(path) as location:
            return snapshot(location)
    except FileNotFoundError:
        return None


def make_snapshot(path: str, data: bytes, status: os.stat_result) -> FileSnapshot:
    return FileSnapshot(
        path=path,
        data=data,
        size=max(status.st_size, len(data)),
        mode=status.st_mode & 0o7777,
        mtime_ns=status.st_mtime_ns,
        inode=status.st_ino,
    )


def check_unchanged(location: FileLocation, expected: FileSnapshot | None) -> None:
    """Raises ToolError if the file is not as expected; also Swapped and OSError."""
    if expected is None:
        if location.status() is not None:
            raise ToolError(f"{location.path} already exists. Read it before you write it.")
        return
    try:
        descriptor = location.open()
    except FileNotFoundError:
        text = f"{location.path} was deleted after it was read. Write it only if it should be created again."
        raise ToolError(text) from None
    with open(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if expected.path != location.path:
            same = False
        elif len(expected.data) == expected.size:
            same = status.st_size == expected.size and has_content(file.read, expected.data)
        else:
            # The file was read in part, so compare inode, mtime and size.
            known = expected.inode, expected.mtime_ns, expected.size
            same = (status.st_ino, status.st_mtime_ns, status.st_size) == known
    if not same:
        raise ToolError(f"{location.path} has changed since it was read. Read it again before you write it.")


def check_writable(location: FileLocation) -> None:
    """Raises ToolError for a read-only file. (A rename could replace it, but its owner does not want that.)"""
    if location.status() is not None and not os.access(
        location.name, os.W_OK, dir_fd=location.folder, effective_ids=True
    ):
        raise ToolError(f"{location.path} cannot be written: the file is read-only.")


def has_content(read: Callable[[int], bytes | None], data: bytes) -> bool:
    """Whether the file has this content. Reads in chunks, so as not to hold it in memory twice."""
    rest = memoryview(data)
    while part := read(CHUNK_BYTES):
        if rest[: len(part)] != part:
            return False
        rest = rest[len(part) :]
    return not rest


def read_beginning(read: Callable[[int], bytes | None], limit_bytes: int, size: int) -> bytes:
    """Read up to `limit_bytes`. A single `read` may return less than there is."""
    parts, left = [], limit_bytes
    while left > 0 and (part := read(min(left, size + 1))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
