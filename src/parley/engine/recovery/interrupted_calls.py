"""Results for calls that were running when an engine ended.

The journal says whether a call was allowed, and checkpoints say whether a file was changed. Nothing is run again: the
model gets what is certain, and decides. Other engines record neither, so only the kind of the tool is certain.
"""

from __future__ import annotations

from collections.abc import Callable

from parley.tools.catalog import find_traits

NOT_RUN = "The engine exited before this call started. It did not run."
READ_ONLY = "The engine exited during this call. It only reads, so it is safe to repeat."
NOT_DONE = "The engine exited during this call. It has changed nothing."
DONE = "The engine exited just after this call had changed {paths}. The change was made; do not make it again."
UNKNOWN = (
    "The engine exited during this call. Its outcome is unknown: it may have done all, some or nothing of its work. "
    "Look at what is there before you run it again."
)


def outcome_text(
    tool: str, *, recorded: bool, allowed: bool, reads_only: bool, changes: Callable[[], list[str] | None]
) -> str:
    """The result for a call that has none.

    `recorded`: the call is of this engine, so its decision and its changes are journalled. `changes` returns the files
    that it changed; None if unknown.
    """
    if recorded and not allowed:
        return NOT_RUN
    if reads_only:
        return READ_ONLY
    if find_traits(tool).effect != "writes_files" or not recorded:
        return UNKNOWN
    changed = changes()
    if changed is None:
        return UNKNOWN
    return DONE.format(paths=", ".join(changed)) if changed else NOT_DONE
