"""What the model has seen of which file.

Older models are not let near a file they have not read; newer ones are trusted to know
what they do. Either way a change that came from elsewhere since is noticed.
"""

from __future__ import annotations

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.tools.base import Context
from parley.workspace.base import Snapshot

NOTES = "Read"


class Seen(Struct, frozen=True, kw_only=True):
    """A file as the model last saw or wrote it."""

    mtime_ns: int
    inode: int
    content_hash: int
    whole: bool


class Standing(Struct, frozen=True, kw_only=True):
    """How the model stands to a file it wants to change."""

    read: bool = False
    changed: bool = False
    """It is not any more what the model saw."""
    whole: bool = False
    """The model knows all of it."""


def remember(context: Context, snapshot: Snapshot, *, whole: bool) -> None:
    files: dict[str, Seen] = context.notes.setdefault(NOTES, {})
    files[snapshot.path] = Seen(
        mtime_ns=snapshot.mtime_ns, inode=snapshot.inode, content_hash=hash(snapshot.data), whole=whole
    )


def standing(context: Context, snapshot: Snapshot) -> Standing:
    """How the model stands to this file. Raises ToolError if it must read it first."""
    seen: Seen | None = context.notes.get(NOTES, {}).get(snapshot.path)
    if seen is None:
        if context.strict_reads:
            raise ToolError("File has not been read yet. Read it first, then change it.")
        return Standing()
    same = (seen.mtime_ns, seen.inode) == (snapshot.mtime_ns, snapshot.inode)
    # A file that was only touched, or written anew with the same content, has not changed for the model.
    changed = not same and seen.content_hash != hash(snapshot.data)
    return Standing(read=True, changed=changed, whole=seen.whole and not changed)
