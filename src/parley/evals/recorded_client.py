"""A client that writes all lines between it and its engine to a recording (`inspector/recording.py`)."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.inspector.clean_lines import CleanLines, KeptLine
from parley.inspector.conversation import decode
from parley.inspector.recording import WireRecorder
from parley.inspector.recording_sink import RecordingSink, make_header
from parley.inspector.records import Direction
from parley.inspector.redaction import WireRedactor
from parley.sdk.client import Client

if TYPE_CHECKING:
    from parley.sdk.launch.args import LaunchSpec
    from parley.sdk.options import Options
    from parley.sdk.runtime.transport import Ended, Wire


class RecordedClient(Client[Any]):
    """Use it as `Client`. An older recording at the same path is replaced."""

    def __init__(self, options: Options[Any], recording: Path) -> None:
        super().__init__(options)
        self._recording = recording

    def _open_wire(self, spec: LaunchSpec, options: Options[Any]) -> Wire:
        self._recording.unlink(missing_ok=True)
        redactor = WireRedactor(spec.environment)
        # Without the file of the model calls: it exists, and a replay of the client would be refused.
        command = ["parley", *(word for word in spec.argv if not word.startswith("--record="))]
        header = make_header(command, redactor, cwd=os.path.abspath(options.cwd or os.curdir))
        log = RedactedRecorder(WireRecorder(self._recording, header), redactor)
        report = options.stderr

        def note_stderr(text: str) -> None:
            log.write(Direction.ERR, text.encode())
            if report is not None:
                report(text)

        options.stderr = note_stderr
        return RecordedWire(super()._open_wire(spec, options), log)


class RedactedRecorder:
    """Splits what is sent into lines and writes them without secrets."""

    def __init__(self, recorder: WireRecorder, redactor: WireRedactor) -> None:
        self._sink = RecordingSink(recorder)
        self._clean = CleanLines(redactor, self._sink.add)
        self._started = time.monotonic()
        self._halves: dict[Direction, bytes] = {}
        self._number = 1
        self._is_open = True

    def write(self, direction: Direction, text: bytes) -> None:
        """Write whole lines."""
        if self._is_open:
            for line in text.splitlines():
                self._number += 1
                record = (self._number, self._now(), direction, len(line), decode(line, direction))
                self._clean.add(KeptLine(record=record, data=line))

    def feed(self, direction: Direction, chunk: bytes) -> None:
        """Write the lines that a chunk completes."""
        *lines, rest = (self._halves.pop(direction, b"") + chunk).split(b"\n")
        for line in lines:
            self.write(direction, line)
        if rest:
            self._halves[direction] = rest

    def end(self, exit_code: int | None) -> None:
        if self._is_open:
            self._is_open = False
            self._clean.flush()
            self._sink.end(self._now(), exit_code or 0)

    def _now(self) -> float:
        return time.monotonic() - self._started


class RecordedWire:
    """A `Wire` whose lines are recorded."""

    def __init__(self, wire: Wire, log: RedactedRecorder) -> None:
        self._wire = wire
        self._log = log

    @property
    def pid(self) -> int | None:
        return self._wire.pid

    async def open(self) -> None:
        await self._wire.open()

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._wire.chunks():
            self._log.feed(Direction.OUT, chunk)
            yield chunk

    def write(self, data: bytes) -> None:
        self._log.feed(Direction.IN, data)
        self._wire.write(data)

    async def flush(self) -> None:
        await self._wire.flush()

    async def end_input(self) -> None:
        await self._wire.end_input()

    async def ended(self) -> Ended:
        ended = await self._wire.ended()
        self._log.end(ended.exit_code)
        return ended

    async def close(self, busy: bool) -> Ended:
        ended = await self._wire.close(busy)
        self._log.end(ended.exit_code)
        return ended

    def abandon(self) -> None:
        self._log.end(None)
        self._wire.abandon()
