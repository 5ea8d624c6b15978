"""The files of this machine.

Every call finds its place by descriptor (safe_open.py); a change leaves a checkpoint
behind (checkpoint/store.py), then happens in one step (atomic.py). Safe to call from threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import RLock
from typing import TYPE_CHECKING, TypeVar

from parley.errors import ToolError
from parley.workspace import atomic, os_errors, safe_open
from parley.workspace.base import Reach, Rewound, Snapshot
from parley.workspace.checkpoint.file_snapshot import must_be, must_be_writable, snapshot, snapshot_at, taken
from parley.workspace.checkpoint.plan import Goal, Tally, goals
from parley.workspace.checkpoint.store import Change, Checkpoints, Damaged, fingerprint
from parley.workspace.safe_open import Pins, Place, Swapped

UNKNOWN_MESSAGE = "No file checkpoint found for this message."

if TYPE_CHECKING:
    from parley.workspace.checkpoint.tree_snapshot import Tree

T = TypeVar("T")


class LocalFiles:
    def __init__(
        self,
        *,
        cwd: str,
        checkpoints: Checkpoints,
        new_id: Callable[[], str],
        tree: Tree | None = None,
        forget_at_end: bool = False,
    ) -> None:
        self.watches_commands = tree is not None
        self._tree = tree
        self._cwd = cwd
        self._checkpoints = checkpoints
        self._new_id = new_id
        self._forget_at_end = forget_at_end
        self._pins = Pins()
        self._changing = RLock()
        self._settled = False

    def read(self, path: str, reach: Reach, limit_bytes: int | None = None) -> Snapshot:
        found = self._look(path, reach, limit_bytes)
        if found is None:
            raise os_errors.missing(path, reach, self._pins, self._cwd)
        return found

    def peek(self, path: str, reach: Reach, limit_bytes: int | None = None) -> Snapshot | None:
        return self._look(path, reach, limit_bytes)

    def write(self, path: str, data: bytes, reach: Reach, *, replacing: Snapshot | None) -> Snapshot:
        def act() -> Snapshot:
            new = replacing is None
            with safe_open.find(path, reach, self._pins, to_write=True, make_folders=new) as place:
                must_be_writable(place)
                must_be(place, replacing)
                beside = self._beside()
                with self._checkpointed(place, fingerprint(data), beside, call=reach.call):
                    made = atomic.replace(place, data, beside, lambda: must_be(place, replacing))
                return taken(place.path, data, made)

        with self._changing, os_errors.told(f"{path} cannot be written"):
            return followed(act)

    def changed_by(self, call: str) -> list[str] | None:
        with self._changing:
            try:
                self._settle()
                rows = self._checkpoints.rows()
            except OSError:
                return None
            if self._checkpoints.damage is not None:
                return None
            return [row.path for row in rows if isinstance(row, Change) and row.call == call]

    def begin_message(self, user_message_id: str) -> None:
        with self._changing:
            # What the disk refuses now is tried again before the first change, which then says so.
            with suppress(OSError):
                self._settle()
            self._checkpoints.begin(user_message_id)

    def rewind(self, user_message_id: str, *, dry_run: bool) -> Rewound:
        with self._changing:
            try:
                self._settle()
            except OSError as flaw:
                return Rewound(possible=False, reason=f"The file history cannot be read: {os_errors.trouble(flaw)}.")
            if self._checkpoints.damage is not None:
                return Rewound(possible=False, reason=f"The file history is damaged: {self._checkpoints.damage}.")
            found = goals(self._checkpoints.rows(), user_message_id)
            if found is None:
                return Rewound(possible=False, reason=UNKNOWN_MESSAGE)
            tally = Tally()
            for goal in found:
                self._go_back(goal, tally, dry_run)
            return tally.rewound()

    def before_command(self) -> None:
        words = "Nothing was run, because the working tree could not be kept as it is"
        if self._tree is not None:
            with self._changing, os_errors.told(words):
                self._settle()
                self._tree.keep()

    def after_command(self) -> None:
        if self._tree is not None:
            with self._changing, suppress(OSError):
                self._tree.compare()

    def close(self) -> None:
        if self._forget_at_end:
            with self._changing, suppress(OSError):
                self._checkpoints.forget()

    def _look(self, path: str, reach: Reach, limit_bytes: int | None) -> Snapshot | None:
        def act() -> Snapshot | None:
            try:
                with safe_open.find(path, reach, self._pins) as place:
                    return snapshot(place, limit_bytes)
            except FileNotFoundError:
                return None

        with os_errors.told(f"{path} cannot be read"):
            return followed(act)

    # Changing.

    def _beside(self) -> str:
        """A name for a file that is being written."""
        return f".parley-{self._new_id()}.tmp"

    @contextmanager
    def _checkpointed(
        self, place: Place, after: str | None, beside: str, *, copy_always: bool = False, call: str = ""
    ) -> Iterator[None]:
        """Keep what is there, then let the change happen; note it if it did not."""
        history = self._checkpoints
        with os_errors.told(f"{place.path} is left as it is, because no checkpoint of it could be kept"):
            self._settle()
            before = None
            if place.status() is not None:
                opened = place.open()
                try:
                    before = history.keep(place.path, opened, always=copy_always)
                finally:
                    os.close(opened)
            history.add(Change(path=place.path, before=before, after=after, beside=beside, call=call))
        happened = False
        try:
            yield
            happened = True
        finally:
            history.settle(happened=happened)

    def _settle(self) -> None:
        """Find out whether the last change of a process that broke off has happened. Raises OSError."""
        if self._settled:
            return
        change = self._checkpoints.unsettled()
        if change is not None:
            with suppress(Swapped, FileNotFoundError), safe_open.at(change.path) as place:
                os.unlink(change.beside, dir_fd=place.folder)
            before = None if change.before is None else change.before.sha256
            self._checkpoints.settle(happened=self._hash_at(change.path) != before)
        self._settled = True

    # Going back.

    def _go_back(self, goal: Goal, tally: Tally, dry_run: bool) -> None:
        """Restore one file, or leave it alone; either way it is tallied."""
        try:
            current = snapshot_at(goal.path)
            verdict = goal.verdict(None if current is None else fingerprint(current.data))
            if verdict == "leave alone":
                tally.leave(goal.path, "it was changed by somebody else since")
            elif verdict == "restore":
                then = None if goal.target is None else self._checkpoints.content(goal.target)
                if not dry_run:
                    self._restore(goal, then, current)
                tally.restore(goal.path, None if current is None else current.data, then)
        except Swapped:
            tally.leave(goal.path, "a link is in its place", link=True)
        except OSError as flaw:
            tally.leave(goal.path, os_errors.trouble(flaw))
        except (ToolError, Damaged) as flaw:
            tally.leave(goal.path, str(flaw))

    def _restore(self, goal: Goal, then: bytes | None, current: Snapshot | None) -> None:
        mode = None if goal.target is None else goal.target.mode
        after = None if goal.target is None else goal.target.sha256
        beside = self._beside()
        with (
            safe_open.at(goal.path, make_folders=then is not None) as place,
            self._checkpointed(place, after, beside, copy_always=True),
        ):
            if then is None:
                must_be(place, current)
                atomic.remove(place)
            else:
                atomic.replace(place, then, beside, lambda: must_be(place, current), mode)

    def _hash_at(self, path: str) -> str | None:
        try:
            found = snapshot_at(path)
        except (Swapped, ToolError):
            return "something else"
        return None if found is None else fingerprint(found.data)


def followed(act: Callable[[], T]) -> T:
    """Follow a name to its place and act there; anew if it changes under our hands."""
    for _ in range(safe_open.TRIES):
        try:
            return act()
        except Swapped:
            continue
    raise ToolError("The path cannot be followed: its links lead in a circle, or it changes all the time.")
