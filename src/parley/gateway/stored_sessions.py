"""The sessions that other programs store on this machine: terminals, editors, the SDK. `parley console` shows them too.

Each becomes a session of the hub without an engine, under its own id: its log gets the messages of its transcript, and
those that are added to it. While another process holds a session (`hub.elsewhere`), its viewers see what it does, and
it takes no prompt here unless it is taken over (`SessionHub.take`).
"""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from datetime import datetime
from pathlib import Path

from parley.errors import SessionError
from parley.gateway.hub import SERVER, SessionHub, is_below, shorten_title
from parley.gateway.security.quotas import read_use
from parley.gateway.session_log.records import CopiedRecord, CreatedRecord, LineRecord
from parley.gateway.session_log.session_log import SessionLog
from parley.gateway.transcript import logged_uuids, open_stores
from parley.protocol.base import Struct
from parley.sdk.attach import encode_entry
from parley.stores.base import Entry, Info
from parley.workspace import private_files


class ReadTranscript(Struct, frozen=True):
    """How far a transcript was read."""

    modified: str
    size_bytes: int
    last: int
    """The number of its last entry."""


class StoredSessions:
    def __init__(self, hub: SessionHub) -> None:
        """Raises UsageError."""
        self._hub = hub
        self._store = open_stores(hub.settings.argv, hub.settings.environment, hub.settings.root).store()
        self._read: dict[str, ReadTranscript] = {}
        self._has_listed = False

    async def follow(self) -> None:
        """Take what is new. After the first time, only while a client watches. Raises SessionError."""
        if self._has_listed and not self._hub.events.has_watchers:
            return
        for info in await asyncio.to_thread(self._list):
            await self._follow(info)
        self._has_listed = True

    def _list(self) -> list[Info]:
        root = self._hub.settings.root
        return [info for info in self._store.list() if is_below(os.path.realpath(info.cwd), [root])]

    async def _follow(self, info: Info) -> None:
        hub, path = self._hub, self._hub.log_path(info.id)
        live = hub.find_live(info.id)
        if live is not None and live.engine is not None:
            self._read.pop(info.id, None)  # it writes the transcript itself
            hub.set_elsewhere(info.id, is_elsewhere=False)
            return
        read = self._read.get(info.id)
        if read is None or (read.modified, read.size_bytes) != (info.modified, info.size_bytes):
            if path.exists() and not hub.has_row(info.id):
                return  # it was deleted here
            entries, last = await asyncio.to_thread(self._read_new, info.id, -1 if read is None else read.last)
            if not path.exists():
                await asyncio.to_thread(write_log, path, info, entries)
                hub.add_stored(info.id)
            elif read is None:
                known = await asyncio.to_thread(self._read_known, info.id)
                entries = [entry for entry in entries if entry.message.get("uuid") not in known]
                self._publish(info.id, entries)
            else:
                self._publish(info.id, entries)
            self._read[info.id] = ReadTranscript(info.modified, info.size_bytes, last)
        hub.set_elsewhere(info.id, is_elsewhere=self._store.is_held(info.id))

    def _read_new(self, session_id: str, after: int) -> tuple[list[Entry], int]:
        """The messages after an entry, and the number of the last entry. Raises SessionError."""
        entries = list(self._store.read(session_id, after))
        last = entries[-1].seq if entries else after
        return [entry for entry in entries if encode_entry(entry) is not None], last

    def _read_known(self, session_id: str) -> set[str]:
        with self._hub.open_log(session_id) as log:
            return logged_uuids(log)

    def _publish(self, session_id: str, entries: list[Entry]) -> None:
        """Add messages to the log of a session, and send them to its viewers."""
        live = self._hub.get(SERVER, session_id)
        if live.engine is not None:
            return  # it was loaded meanwhile, and has added them
        for entry in entries:
            if (line := encode_entry(entry)) is not None:
                live.publish_missing(line, read_time(entry.at))


def write_log(path: Path, info: Info, entries: list[Entry]) -> None:
    """Write the log of a session from its transcript; it is at its path when it is complete. Raises SessionError."""
    created = CreatedRecord(
        tenant=SERVER.tenant,
        creator=SERVER.name,
        cwd=os.path.realpath(info.cwd),
        options=b"[]",
        title=shorten_title(info.title or ""),
        at=read_time(info.created),
    )
    lines = [(read_time(entry.at), line) for entry in entries if (line := encode_entry(entry)) is not None]
    frames = [[LineRecord(number=number, at=at, data=line)] for number, (at, line) in enumerate(lines, 1)]
    results = [entry.message for entry in entries if entry.kind == "result"]
    paid = read_use(results[-1] if results else {})
    unfinished = path.with_suffix(".copy")
    with closing(SessionLog(unfinished)) as log:
        # What it has cost was paid elsewhere. `lines` is 0: its turns are not those of another session of the hub.
        copied = CopiedRecord(source=info.id, lines=0, total_tokens=paid.tokens, total_usd=paid.usd)
        log.restore([created], *frames, [copied])
    try:
        private_files.rename(unfinished, path.name)
    except OSError as exc:
        raise SessionError(f"cannot create {path}: {exc.strerror}") from None


def read_time(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
