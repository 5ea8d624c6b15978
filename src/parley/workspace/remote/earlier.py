"""What the model is told of a command that an engine started and did not see end."""

from __future__ import annotations

from parley.workspace.remote.calls import EarlierCommand

MAX_SHOWN_CHARS = 2_000


def describe_earlier(found: EarlierCommand | None) -> str:
    """A sentence or two; empty if nothing is known."""
    if found is None:
        return ""
    if found.exit_code is None:
        how = "The workspace ended the command, because its engine was gone."
    else:
        how = f"The command itself ended with exit code {found.exit_code}."
    shown = found.last_output.decode(errors="replace").replace("\0", "\ufffd")[-MAX_SHOWN_CHARS:].strip()
    return f"{how} It had written {found.total_bytes} bytes." + (f" The end of its output:\n{shown}" if shown else "")
