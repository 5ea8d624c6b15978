"""A client that writes all lines between it and its engine to a recording (`inspector/recording.py`)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.inspector.recorder import ConversationRecorder, make_header
from parley.inspector.recording import Direction
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
        log = ConversationRecorder(self._recording, header, redactor)
        report = options.stderr

        def note_stderr(text: str) -> None:
            log.feed(Direction.ERR, text.encode() + b"\n")
            if report is not None:
                report(text)

        options.stderr = note_stderr
        return RecordedWire(super()._open_wire(spec, options), log)


class RecordedWire:
    """A `Wire` whose lines are recorded."""

    def __init__(self, wire: Wire, log: ConversationRecorder) -> None:
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
        self._log.end(ended.exit_code or 0)
        return ended

    async def close(self, busy: bool) -> Ended:
        ended = await self._wire.close(busy)
        self._log.end(ended.exit_code or 0)
        return ended

    def abandon(self) -> None:
        self._log.end(0)
        self._wire.abandon()
