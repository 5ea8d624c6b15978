"""Write the lines of a conversation to a recording, without secrets.

recorder = WireRecorder(path, make_header(command, redactor, cwd=cwd))
lines = CleanLines(redactor, RecordingSink(recorder).add)
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from parley.inspector.clean_lines import KeptLine, clean_command
from parley.inspector.recording import Sender, WireHeader, WireRecorder
from parley.inspector.records import Direction
from parley.inspector.redaction import WireRedactor
from parley.version import __version__

SENDERS: dict[Direction, Sender] = {
    Direction.IN: "client",
    Direction.OUT: "engine",
    Direction.ERR: "engine_stderr",
}
DIRECTIONS = {sender: direction for direction, sender in SENDERS.items()}


class RecordingSink:
    """Writes lines to a recording."""

    def __init__(self, recorder: WireRecorder) -> None:
        self._recorder = recorder

    def add(self, line: KeptLine) -> None:
        """Raises OSError."""
        _, at, direction, *_ = line.record
        if line.eof:
            self._recorder.eof(at * 1000, SENDERS[direction])
        else:
            self._recorder.line(at * 1000, SENDERS[direction], line.data, eol=line.eol)

    def end(self, at: float, exit_code: int) -> None:
        """Raises OSError."""
        self._recorder.end(at * 1000, exit_code)

    def close(self) -> None:
        self._recorder.close()


def make_header(command: Sequence[str], redactor: WireRedactor, *, cwd: str, env: Sequence[str] = ()) -> WireHeader:
    """The header of a recording that starts now."""
    return WireHeader(
        command=tuple(clean_command(command, redactor.redact_text)),
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        cwd=cwd,
        env=tuple(env),
        recorder=f"parley {__version__}",
    )
