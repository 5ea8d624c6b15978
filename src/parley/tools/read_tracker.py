"""Tracks which files the model has read.

Older models must read a file before they change it; newer ones need not. In both cases a change by someone else since
the last read is detected.
"""

from __future__ import annotations

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.tools.base import Context
from parley.workspace.base import FileSnapshot

NOTES = "Read"


class SeenFile(Struct, frozen=True, kw_only=True):
    """A file as the model last saw or wrote it."""

    mtime_ns: int
    inode: int
    content_hash: int
    whole: bool


class ReadState(Struct, frozen=True, kw_only=True):
    """The state of a file that the model wants to change."""

    read: bool = False
    changed: bool = False
    """It changed since the model saw it."""
    whole: bool = False
    """The model has seen all of it."""


def mark_seen(context: Context, snapshot: FileSnapshot, *, whole: bool) -> None:
    files: dict[str, SeenFile] = context.state.notes.setdefault(NOTES, {})
    files[snapshot.path] = SeenFile(
        mtime_ns=snapshot.mtime_ns, inode=snapshot.inode, content_hash=hash(snapshot.data), whole=whole
    )


def check_read_state(context: Context, snapshot: FileSnapshot) -> ReadState:
    """The state of this file. Raises ToolError if the model must read it first."""
    seen: SeenFile | None = context.state.notes.get(NOTES, {}).get(snapshot.path)
    if seen is None:
        if context.session.must_read_first():
            raise ToolError("File has not been read yet. Read it first, then change it.")
        return ReadState()
    same = (seen.mtime_ns, seen.inode) == (snapshot.mtime_ns, snapshot.inode)
    # A file that was only touched, or written anew with the same content, has not changed for the model.
    changed = not same and seen.content_hash != hash(snapshot.data)
    return ReadState(read=True, changed=changed, whole=seen.whole and not changed)
