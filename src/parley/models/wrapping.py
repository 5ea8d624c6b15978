"""What is put around a model: faults inside, the recorder outside, so that a tape has what the engine saw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from parley.models.base import Model
from parley.models.faults.catalog import Plan
from parley.models.faults.model import Faulty
from parley.models.http.call import Deadlines
from parley.models.recording.format import Head
from parley.models.recording.recorder import Recorder, Writer
from parley.models.recording.replay import Replay
from parley.models.redaction import Redaction, secrets_in
from parley.version import __version__


class Wraps:
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
        complain: Callable[[str], None],
    ) -> None:
        """`places` are folders whose names differ from run to run. Raises UsageError for a fault nobody knows."""
        self.redaction = Redaction([*secrets_in(environment), *secrets])
        self._plan = Plan.read(faults, "option '--fault'") if faults else None
        self._deadlines = deadlines
        self._places = dict(places)
        self._record = record
        self._now = now
        self._clock = clock
        self._complain = complain
        self._writer: Writer | None = None

    def around(self, model: Model) -> Model:
        """Raises UsageError if the tape cannot be made."""
        if self._plan is not None:
            model = Faulty(model, self._plan, self._deadlines)
        writer = self.tape()
        return model if writer is None else Recorder(model, writer)

    def tape(self) -> Writer | None:
        """The tape, if one was asked for; made when it is first needed. Raises UsageError."""
        if self._writer is None and self._record is not None:
            head = Head(by=f"parley {__version__}", at=self._now(), places=self._places)
            self._writer = Writer(self._record, head, self.redaction, self._clock, self._complain)
        return self._writer

    def replay(self, path: Path) -> Model:
        """Raises UsageError."""
        return Replay(path, places=self._places, redaction=self.redaction)
