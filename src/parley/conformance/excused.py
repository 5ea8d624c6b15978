"""Required behaviours that no check covers, and why."""

from __future__ import annotations

EXCUSED = {
    "out.rate_limit_event": "it follows headers that only subscription tokens get, which a suite must not use",
    "top.rate_limit_event": "it follows headers that only subscription tokens get, which a suite must not use",
    "out.system/consolidation_C": "when a memory is consolidated is not specified, and cannot be caused from outside",
    "system.consolidation_C": "when a memory is consolidated is not specified, and cannot be caused from outside",
    "out.system/mirror_error": "SDKs make it; an engine never sends it",
    "system.mirror_error": "SDKs make it; an engine never sends it",
    "block.advisor_tool_result": "a tool of the vendor's server; a scripted model cannot run it",
    "hook.Notification": "when an engine notifies is not specified, and no recording has it",
    "flag.api-key": "only seed 001 has it: a key on the command line is visible to other processes",
}
