"""Where a path that the model gave leads, and the file that is there."""

from __future__ import annotations

import os

from parley.errors import ToolError
from parley.tools.base import Context
from parley.workspace.base import Reach, Snapshot

SMALL_BYTES = 1 << 20
LARGEST_BYTES = 256 << 20
"""A file is in memory as a whole while it is read or changed."""


def located(path: str, context: Context) -> str:
    """The absolute path; a relative one is taken from the session's directory. Raises ToolError."""
    if path.startswith("~"):
        raise ToolError(f"`~` is not expanded here: give {path!r} as an absolute path.")
    return os.path.join(context.cwd, path)


def opened(path: str, context: Context, reach: Reach) -> Snapshot:
    """The whole file. Raises ToolError."""
    found = context.files.read(path, reach, SMALL_BYTES)
    if found.size <= len(found.data):
        return found
    if found.size > LARGEST_BYTES:
        raise ToolError(f"{path} is too large for this tool ({found.size} bytes). Use Grep, or a command in Bash.")
    return context.files.read(path, reach)
