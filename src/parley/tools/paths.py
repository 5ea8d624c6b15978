"""Resolve a path from the model, and read the file at it."""

from __future__ import annotations

import os

from parley.errors import ToolError
from parley.tools.base import Context
from parley.workspace.base import FileSnapshot, Scope

SMALL_BYTES = 1 << 20
LARGEST_BYTES = 256 << 20
"""A file is held in memory while it is read or changed."""


def resolve_path(path: str, context: Context) -> str:
    """The absolute path; a relative one starts at the working directory. Raises ToolError."""
    if path.startswith("~"):
        raise ToolError(f"`~` is not expanded here: give {path!r} as an absolute path.")
    return os.path.join(context.state.cwd, path)


def read_whole_file(path: str, context: Context, reach: Scope) -> FileSnapshot:
    """The whole file. Raises ToolError."""
    found = context.files.read(path, reach, SMALL_BYTES)
    if found.size <= len(found.data):
        return found
    if found.size > LARGEST_BYTES:
        raise ToolError(f"{path} is too large for this tool ({found.size} bytes). Use Grep, or a command in Bash.")
    return context.files.read(path, reach)
