"""Copy transcript lines of an engine to the program's own store.

Lines are appended in batches: at the end of a turn, when a batch is full, or immediately (`eager`). A failed
append is retried. If it still fails, the stream gets a `mirror_error` message and the session continues.

All messages pass through the mirror. A result is delivered after the lines before it are stored or have
failed, so a program that has the result of a turn knows whether the turn is stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from parley.protocol import base
from parley.protocol.base import Json
from parley.protocol.messages.notices import TranscriptMirror
from parley.protocol.messages.occasional import MirrorError
from parley.protocol.messages.result import Result
from parley.sdk.errors import describe_exception
from parley.sdk.runtime.background import Job, is_stray, log, start
from parley.sdk.types.shapes import SessionKey

MAX_ENTRIES = 500
MAX_BYTES = 1 << 20
PAUSES_SECONDS = (0.2, 0.8)
APPEND_SECONDS = 60.0


Step = Callable[[], None]


class StoreMirror:
    """Appends transcript lines to a store and delivers all other messages."""

    def __init__(self, store: Any, eager: bool, deliver: Callable[[base.Message], None]) -> None:
        self._store = store
        self._eager = eager
        self._deliver = deliver
        self._held: deque[tuple[str, list[Json]] | Step] = deque()
        """Batches of lines by path, and steps that run after the batches before them."""
        self._steps = 0
        self._entries = 0
        self._bytes = 0
        self._sending: Job | None = None

    def receive(self, message: base.Message) -> None:
        """Handle a message of the engine."""
        if isinstance(message, TranscriptMirror):
            self._copy(message)
        elif isinstance(message, Result) or (isinstance(message, base.Refused) and message.kind == "result"):
            self.run_after_flush(lambda: self._deliver(message))
        elif self._steps:
            self._queue_step(lambda: self._deliver(message))
        else:
            self._deliver(message)

    def run_after_flush(self, step: Step) -> None:
        """Run a step after all lines before it are stored or have failed; immediately if none are waiting."""
        if self._held or self._sending is not None:
            self._queue_step(step)
            self._send()
        else:
            step()

    def _queue_step(self, step: Step) -> None:
        self._held.append(step)
        self._steps += 1

    def _copy(self, message: TranscriptMirror) -> None:
        last = self._held[-1] if self._held else None
        if isinstance(last, tuple) and last[0] == message.filePath:
            last[1].extend(message.entries)
        else:
            self._held.append((message.filePath, list(message.entries)))
        self._entries += len(message.entries)
        self._bytes += len(message.line or b"")
        if self._eager or self._entries >= MAX_ENTRIES or self._bytes >= MAX_BYTES:
            self._send()

    def _send(self) -> None:
        if self._sending is None and self._held:
            self._sending = start(self._run)

    async def _run(self) -> None:
        try:
            while self._held:
                first = self._held.popleft()
                if isinstance(first, tuple):
                    self._entries = self._bytes = 0
                    await self._append(*first)
                else:
                    self._steps -= 1
                    first()
        finally:
            self._sending = None

    def _report_error(self, error: str, key: SessionKey | None = None) -> None:
        log.warning("the session store failed to append entries: %s", error)
        self._deliver(MirrorError(error=error) if key is None else MirrorError(error=error, key=dict(key)))

    async def _append(self, path: str, entries: list[Json]) -> None:
        from anyio import fail_after, sleep

        key = parse_key(path)
        if key is None:
            self._report_error(f"{path} is not the path of a transcript")
            return
        for pause in (*PAUSES_SECONDS, None):
            try:
                with fail_after(APPEND_SECONDS):
                    await self._store.append(key, entries)
                return
            except TimeoutError:
                # The append may still succeed, so a retry could store the entries twice.
                self._report_error(f"the store did not append within {APPEND_SECONDS:g} s", key)
                return
            except BaseException as exc:
                if not isinstance(exc, Exception) and not is_stray(exc):
                    raise
                if pause is None:
                    self._report_error(describe_exception(exc), key)
                    return
            await sleep(pause)

    async def flush(self) -> None:
        """Wait until all lines are stored or have failed."""
        self._send()
        while (job := self._sending) is not None:
            await job.wait()
            self._send()


def parse_key(path: str) -> SessionKey | None:
    """Parse a transcript path: `…/projects/<project>/<session>.jsonl`, with subagents in folders below."""
    parts = path.replace("\\", "/").split("/")
    if "projects" not in parts or not path.endswith(".jsonl"):
        return None
    project, *rest = parts[len(parts) - parts[::-1].index("projects") :] or [""]
    if not project or not rest:
        return None
    session_id, *below = rest
    if not below:
        return {"project_key": project, "session_id": session_id.removesuffix(".jsonl")}
    subpath = "/".join(below).removesuffix(".jsonl")
    return {"project_key": project, "session_id": session_id, "subpath": subpath}
