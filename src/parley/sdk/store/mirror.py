"""Copies of what an engine writes, on their way to the program's own store.

They go in batches: when a turn has ended, when many wait, or each at once (`eager`). A store that fails
is tried again; what it does not take is told on the stream, as a `mirror_error`, and nothing else suffers.

All that the engine says comes by here, and a result waits until the session up to there is with the store
or given up: whoever has the result of a turn has been told what became of its copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from parley.protocol import base
from parley.protocol.base import Json
from parley.protocol.messages.notices import TranscriptMirror
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import MirrorError
from parley.sdk.runtime.background import Job, is_stray, log, start
from parley.sdk.types.shapes import SessionKey

MOST_ENTRIES = 500
MOST_BYTES = 1 << 20
PAUSES_SECONDS = (0.2, 0.8)
APPEND_SECONDS = 60.0


Step = Callable[[], None]


class Mirror:
    def __init__(self, store: Any, eager: bool, told: Callable[[base.Message], None]) -> None:
        self._store = store
        self._eager = eager
        self._told = told
        self._held: deque[tuple[str, list[Json]] | Step] = deque()
        """Copies, and what may only be done when those before it have gone."""
        self._steps = 0
        self._entries = 0
        self._bytes = 0
        self._sending: Job | None = None

    def put(self, message: base.Message) -> None:
        """What the engine said, on its way to the readers."""
        if isinstance(message, TranscriptMirror):
            self._copy(message)
        elif isinstance(message, Result) or (isinstance(message, base.Refused) and message.kind == "result"):
            self.then(lambda: self._told(message))
        elif self._steps:
            self._wait(lambda: self._told(message))
        else:
            self._told(message)

    def then(self, step: Step) -> None:
        """Do something once all that was copied before is with the store, or given up; at once if it is."""
        if self._held or self._sending is not None:
            self._wait(step)
            self._send()
        else:
            step()

    def _wait(self, step: Step) -> None:
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
        if self._eager or self._entries >= MOST_ENTRIES or self._bytes >= MOST_BYTES:
            self._send()

    def _send(self) -> None:
        if self._sending is None and self._held:
            self._sending = start(self._work)

    async def _work(self) -> None:
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

    def _given_up(self, error: str, key: SessionKey | None = None) -> None:
        log.warning("the session store did not take a part of a session: %s", error)
        self._told(MirrorError(error=error) if key is None else MirrorError(error=error, key=dict(key)))

    async def _append(self, path: str, entries: list[Json]) -> None:
        from anyio import fail_after, sleep

        key = key_of(path)
        if key is None:
            self._given_up(f"{path} is no transcript")
            return
        for pause in (*PAUSES_SECONDS, None):
            try:
                with fail_after(APPEND_SECONDS):
                    await self._store.append(key, entries)
                return
            except TimeoutError:
                # It may still arrive: a second try could keep everything twice.
                self._given_up(f"the store took longer than {APPEND_SECONDS:g} s", key)
                return
            except BaseException as flaw:
                if not isinstance(flaw, Exception) and not is_stray(flaw):
                    raise
                if pause is None:
                    self._given_up(f"{flaw}" or type(flaw).__name__, key)
                    return
            await sleep(pause)

    async def flush(self) -> None:
        """Until everything is with the store, or given up."""
        self._send()
        while (job := self._sending) is not None:
            await job.wait()
            self._send()


def key_of(path: str) -> SessionKey | None:
    """Which session a transcript belongs to: `…/projects/<project>/<session>.jsonl`, agents in folders below."""
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
