"""Play one side of a recorded conversation, and compare the other side with the recording. No I/O.

    player = SidePlayer(recording, "engine")
    for cue in player.take(): ...              # what to send now
    player.receive(line)                       # raises ReplayDifference

A line is sent when everything that the other side had sent before it has arrived. The other side may send lines
earlier than recorded, and lines that stand between two of ours in any order.

See also: `run.py` joins a player with a transport; `comparison.py` says what equals what.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from parley.errors import ParleyError
from parley.inspector.recording import WireLine, WireRecording
from parley.protocol.base import Struct
from parley.testing.replay.comparison import (
    IdMap,
    answered_id,
    find_difference,
    kind_of,
    read_message,
    show,
)

Side = Literal["client", "engine"]
OTHER: Mapping[Side, Side] = {"client": "engine", "engine": "client"}
STDERR = "engine_stderr"


class ReplayDifference(ParleyError):
    """The conversation differs from the recording."""


class Cue(Struct, frozen=True):
    """What to send now."""

    sender: str
    """The side that is played, or `engine_stderr`."""
    data: bytes
    """With its newline; empty if the stream ends here."""
    at_ms: float
    eof: bool = False


class SidePlayer:
    """Plays one side of a recording."""

    def __init__(self, recording: WireRecording, side: Side, places: Mapping[str, str] | None = None) -> None:
        """`places` maps directories of the recording to those of this run."""
        self._recording = recording
        self._side, self._peer = side, OTHER[side]
        self._places = places or {}
        self._ids = IdMap()
        self._next = 0
        """The first line that was not sent, or not received."""
        ignored = () if side == "engine" else (STDERR,)  # what an engine logs is not compared
        self._lines = [line for line in recording.lines if line.sender not in ignored]
        self._messages: list[Any] = [read_message(line.data) for line in self._lines]
        self._kinds = [(kind_of(message), answered_id(message)) for message in self._messages]
        self._missing = [at for at, line in enumerate(self._lines) if line.sender == self._peer]
        """The lines of the other side that have not arrived."""

    @property
    def done(self) -> bool:
        """Whether everything was sent and received."""
        return self._next == len(self._lines)

    def take(self) -> list[Cue]:
        """What is to be sent now. Each cue is given once."""
        cues = []
        while not self.done:
            line = self._lines[self._next]
            if line.sender == self._peer:
                if self._next in self._missing[:1]:
                    break
            else:
                cues.append(self._make_cue(line, self._messages[self._next]))
            self._next += 1
        return cues

    def _make_cue(self, line: WireLine, message: Any) -> Cue:
        if line.eof:
            return Cue(line.sender, b"", line.at_ms, eof=True)
        self._ids.fix(message)
        data = self._ids.apply(line.data) if isinstance(message, dict) else line.data
        return Cue(line.sender, data + (b"\n" if line.eol else b""), line.at_ms)

    def receive(self, data: bytes) -> None:
        """Take a line of the other side, without its newline. Raises ReplayDifference."""
        if not data.strip():
            return
        message = read_message(data)
        candidates = self._find_candidates((kind_of(message), answered_id(message)))
        if not candidates:
            raise ReplayDifference(f"{self.describe_wait()}, found {kind_of(message)}: {show(message)}")
        differences = []
        for at in candidates:
            difference = find_difference(self._messages[at], message, self._ids, self._places)
            self._ids.end_comparison(equal=difference is None)
            if difference is None:
                self._missing.remove(at)
                return
            differences.append(difference)
        raise ReplayDifference(f"{self._name(candidates[0])}: {kind_of(message)} differs at {differences[0]}")

    def receive_eof(self) -> None:
        """The other side closed its stream. Raises ReplayDifference if the recording has more lines of it."""
        if any(not self._lines[at].eof for at in self._missing):
            raise ReplayDifference(f"{self.describe_wait()}, found the end of the stream")
        self._missing.clear()

    def describe_wait(self) -> str:
        """What is to come next from the other side."""
        if not self._missing:
            return f"{self._recording.name}: expected no more lines from the {self._peer}"
        at = self._missing[0]
        what = "the end of the stream" if self._lines[at].eof else self._kinds[at][0]
        return f"{self._name(at)}: expected {what} from the {self._peer}"

    def _find_candidates(self, kind: tuple[str, str | None]) -> list[int]:
        """The recorded lines that this may be: those before our next line, else the next one of the same kind.

        A side may be ahead of the recording, but it does not leave out a request: we would wait for it for ever.
        """
        ours = (at for at in range(self._next, len(self._lines)) if self._lines[at].sender == self._side)
        end = next(ours, len(self._lines))
        found: list[int] = []
        skips_request = False
        for at in self._missing:
            if at >= end and (found or skips_request):
                break
            skips_request = skips_request or self._kinds[at][0].startswith("control_request")
            if self._kinds[at] == kind and not self._lines[at].eof:
                found.append(at)
        return found

    def _name(self, at: int) -> str:
        return f"{self._recording.name}:{self._lines[at].number}"
