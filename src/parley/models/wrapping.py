"""What is put around a model: faults inside, the recorder outside, so that a tape has what the engine saw."""

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
from parley.models.redaction import Redactor, find_secrets
from parley.version import __version__


class ModelWrapper:
    """All models of a session share one tape, and one plan of what goes wrong."""

    def __init__(
        self,
        *,
        environment: Mapping[str, str],
        secrets: Iterable[str] = (),
        places: Mapping[str, str],
        record: Path | None = None,
        faults: Sequence[str] = (),
        deadlines: Deadlines | None = None,
        now: Callable[[], str],
        clock: Callable[[], float],
        warn: Callable[[str], None],
    ) -> None:
        """`places` are folders whose names differ from run to run. Raises UsageError for a fault nobody knows."""
        self.redaction = Redactor([*find_secrets(environment), *secrets])
        self._plan = FaultPlan.read(faults, "option '--fault'") if faults else None
        self._deadlines = deadlines
        self._places = dict(places)
        self._record = record
        self._now = now
        self._clock = clock
        self._warn = warn
        self._writer: RecordingWriter | None = None

    def wrap(self, model: Model) -> Model:
        """Raises UsageError if the tape cannot be made."""
        if self._plan is not None:
            model = FaultyModel(model, self._plan, self._deadlines)
        writer = self.open_recording()
        return model if writer is None else Recorder(model, writer)

    def open_recording(self) -> RecordingWriter | None:
        """The tape, if one was asked for; made when it is first needed. Raises UsageError."""
        if self._writer is None and self._record is not None:
            head = RecordingHeader(by=f"parley {__version__}", at=self._now(), places=self._places)
            self._writer = RecordingWriter(self._record, head, self.redaction, self._clock, self._warn)
        return self._writer

    def replay(self, path: Path) -> Model:
        """Raises UsageError."""
        return Replay(path, places=self._places, redaction=self.redaction)
