"""A client that writes all lines between it and its engine to a recording (`inspector/recording.py`)."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from parley.inspector.recording import Sender, WireHeader, WireRecorder
from parley.models.redaction import Redactor, find_secrets
from parley.sdk.client import Client
from parley.version import __version__

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
        header = WireHeader(
            # Without the file of the model calls: it exists, and a replay of the client would be refused.
            command=("parley", *(word for word in spec.argv if not word.startswith("--record="))),
            started_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            cwd=os.path.abspath(options.cwd or os.curdir),
            recorder=f"parley {__version__}",
        )
        log = RedactedRecorder(WireRecorder(self._recording, header), Redactor(find_secrets(spec.environment)))
        report = options.stderr

        def note_stderr(text: str) -> None:
            log.write("engine_stderr", text.encode())
            if report is not None:
                report(text)

        options.stderr = note_stderr
        return RecordedWire(super()._open_wire(spec, options), log)


class RedactedRecorder:
    """Splits what is sent into lines and writes them without secrets."""

    def __init__(self, recorder: WireRecorder, redactor: Redactor) -> None:
        self._recorder = recorder
        self._redactor = redactor
        self._started = time.monotonic()
        self._halves: dict[Sender, bytes] = {}
        self._is_open = True

    def write(self, sender: Sender, text: bytes) -> None:
        """Write whole lines."""
        if self._is_open:
            for line in text.splitlines():
                self._recorder.line(self._now_ms(), sender, self._redact(line))

    def feed(self, sender: Sender, chunk: bytes) -> None:
        """Write the lines that a chunk completes."""
        *lines, rest = (self._halves.pop(sender, b"") + chunk).split(b"\n")
        for line in lines:
            self.write(sender, line)
        if rest:
            self._halves[sender] = rest

    def end(self, exit_code: int | None) -> None:
        if self._is_open:
            self._is_open = False
            self._recorder.end(self._now_ms(), exit_code or 0)

    def _now_ms(self) -> float:
        return (time.monotonic() - self._started) * 1000

    def _redact(self, line: bytes) -> bytes:
        text = line.decode(errors="replace")
        if (redacted := self._redactor.redact_text(text)) == text:
            return line
        try:  # inside the JSON, because a match may reach beyond the end of a string
            return msgspec.json.encode(self._redactor.redact_value(msgspec.json.decode(line)))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return redacted.encode()


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
            self._log.feed("engine", chunk)
            yield chunk

    def write(self, data: bytes) -> None:
        self._log.feed("client", data)
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
