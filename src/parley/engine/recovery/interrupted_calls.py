"""What became of the calls that were under way when an engine ended.

The log tells how far each had come: allowed or not. Whether a file was changed, its
checkpoints tell. Nothing is run again here; the model hears what is certain, and decides.
Other engines record neither, so of a call of theirs only the kind of its tool is certain.
"""

from __future__ import annotations

from collections.abc import Callable

from parley.tools.catalog import find_traits

NOT_RUN = "The engine ended before this call was run. It did not run."
READ_ONLY = "The engine ended while this call ran. It changes nothing, so it can be made again."
NOT_DONE = "The engine ended while this call ran. It has changed nothing."
DONE = "The engine ended just after this call had changed {paths}. The change was made; do not make it again."
UNKNOWN = (
    "The engine ended while this call ran. Its outcome is unknown: it may have done all, some or nothing of its work. "
    "Look at what is there before you run it again."
)


def outcome_text(
    tool: str, *, recorded: bool, allowed: bool, reads_only: bool, changes: Callable[[], list[str] | None]
) -> str:
    """What to tell the model of a call that has no result.

    `recorded`: this engine made the call, so that its permission and its changes are on record if there are any.
    `changes` gives the files it changed, None if unknown.
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
