"""Wraps the models of a session with fault injection and recording.

Faults are inside, the recorder outside, so that a recording has what the engine received.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from parley.models.base import Model
from parley.models.faults.catalog import FaultPlan
from parley.models.faults.model import FaultyModel
from parley.models.http.call import Deadlines
from parley.models.recording.format import RecordingHeader
from parley.models.recording.recorder import Recorder, RecordingWriter
from parley.models.recording.replay import Replay
from parley.models.redaction import Redactor
from parley.protocol.base import Struct
from parley.version import __version__


class RecordingTarget(Struct, frozen=True):
    """The file to record to, and the clocks for its timestamps."""

    path: Path
    now: Callable[[], str]
    """The current time, for the header."""
    clock: Callable[[], float]
    """Monotonic seconds, for the lines."""


class ModelWrapper:
    """All models of a session share one recording and one fault plan."""

    def __init__(
        self,
        *,
        secrets: Iterable[str],
        places: Mapping[str, str],
        recording: RecordingTarget | None = None,
        faults: Sequence[str] = (),
        deadlines: Deadlines | None = None,
        warn: Callable[[str], None],
    ) -> None:
        """`places` are directories whose paths differ between runs. Raises UsageError for an unknown fault."""
        self.redaction = Redactor(secrets)
        self._plan = FaultPlan.read(faults, "option '--fault'") if faults else None
        self._deadlines = deadlines
        self._places = dict(places)
        self._target = recording
        self._warn = warn
        self._writer: RecordingWriter | None = None

    def wrap(self, model: Model) -> Model:
        """Raises UsageError if the recording cannot be created."""
        if self._plan is not None:
            model = FaultyModel(model, self._plan, self._deadlines)
        writer = self.open_recording()
        return model if writer is None else Recorder(model, writer)

    def open_recording(self) -> RecordingWriter | None:
        """The recording, if requested; created on first use. Raises UsageError."""
        target = self._target
        if self._writer is None and target is not None:
            head = RecordingHeader(by=f"parley {__version__}", at=target.now(), places=self._places)
            self._writer = RecordingWriter(target.path, head, self.redaction, target.clock, self._warn)
        return self._writer

    def replay(self, path: Path) -> Model:
        """Raises UsageError."""
        return Replay(path, places=self._places, redaction=self.redaction)
