"""The sessions that other programs store on this machine: terminals, editors, the SDK. `parley console` shows them too.

Each becomes a session of the hub without an engine, under its own id: its log gets the messages of its transcript, and
those that are added to it. While another process holds a session (`hub.elsewhere`), its viewers see what it does, and
it takes no prompt here unless it is taken over (`SessionHub.take`).
"""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from pathlib import Path

from parley.errors import SessionError
from parley.gateway.hub import SERVER, SessionHub, is_below, shorten_title
from parley.gateway.refusal import Refusal
from parley.gateway.security.quotas import read_use
from parley.gateway.session_log.records import CopiedRecord, CreatedRecord, LineRecord
from parley.gateway.session_log.session_log import SessionLog
from parley.gateway.transcript import logged_uuids, open_stores, read_time
from parley.protocol.base import Struct
from parley.sdk.attach import encode_entry
from parley.stores.base import Entry, Info
from parley.workspace import private_files


class ReadTranscript(Struct, frozen=True):
    """How far a transcript was read."""

    version: tuple[str, int]
    """When it was last written, and its size."""
    last: int
    """The number of its last entry."""
    line: int
    """The last line of the log before it was read. What was stored later is logged after this line."""


UNREAD = ReadTranscript(("", 0), -1, 0)


class StoredSessions:
    def __init__(self, hub: SessionHub) -> None:
        """Raises UsageError."""
        self._hub = hub
        self._store = open_stores(hub.settings.argv, hub.settings.environment, hub.settings.root).store()
        self._read: dict[str, ReadTranscript] = {}
        self._failed: dict[str, tuple[str, int]] = {}
        """The versions of transcripts that cannot be read."""
        self._has_listed = False

    async def follow(self) -> None:
        """Take what is new. After the first time, only while a client watches. Raises SessionError."""
        if self._has_listed and not self._hub.events.has_watchers:
            return
        listed = await asyncio.to_thread(self._list)
        ids = self._hub.find_engine_ids()
        for info, is_held in listed:
            version = (info.modified, info.size_bytes)
            session_id = ids.get(info.id, info.id)
            if session_id is None or self._failed.get(info.id) == version:
                continue
            try:
                await self._follow(session_id, info, version)
            except (SessionError, Refusal) as exc:
                self._failed[info.id] = version
                self._hub.log.warn(f"the stored session {info.id} is not shown: {exc}")
            if is_held != (session_id in self._hub.elsewhere):  # ask again: it may have been loaded or released
                is_elsewhere = not self._runs_here(session_id) and self._store.is_held(info.id)
                self._hub.set_elsewhere(session_id, is_elsewhere=is_elsewhere)
        self._has_listed = True

    def _list(self) -> list[tuple[Info, bool]]:
        """The sessions below the root, and whether a process holds them."""
        found = [info for info in self._store.list() if is_below(os.path.realpath(info.cwd), [self._hub.settings.root])]
        return [(info, self._store.is_held(info.id)) for info in found]

    def _runs_here(self, session_id: str) -> bool:
        live = self._hub.find_live(session_id)
        return live is not None and live.engine is not None

    async def _follow(self, session_id: str, info: Info, version: tuple[str, int]) -> None:
        """Raises SessionError, Refusal."""
        hub, path = self._hub, self._hub.log_path(session_id)
        read = self._read.get(info.id, UNREAD)
        if read.version == version or self._runs_here(session_id):
            return  # an engine of the hub sends what it stores
        if not hub.has_row(session_id):
            if not path.exists():  # otherwise it was deleted here
                last, entries = await asyncio.to_thread(self._read_new, info.id, UNREAD)
                await asyncio.to_thread(write_log, path, info, entries)
                hub.add_stored(session_id)
                self._read[info.id] = ReadTranscript(version, last, 0)
            return
        line, last, entries = await asyncio.to_thread(self._read_missing, session_id, info.id, read)
        live = hub.get(SERVER, session_id) if entries else hub.find_live(session_id)
        if live is not None:
            if live.engine is not None or live.log.last != line:
                return  # it was loaded meanwhile: compare again
            for entry in entries:
                live.publish_missing(encode_entry(entry) or b"", read_time(entry.at))
        self._read[info.id] = ReadTranscript(version, last, line)

    def _read_new(self, stored_id: str, read: ReadTranscript) -> tuple[int, list[Entry]]:
        """The number of the last entry, and the messages that were not read. Raises SessionError."""
        entries = list(self._store.read(stored_id, read.last))
        last = entries[-1].seq if entries else read.last
        return last, [entry for entry in entries if encode_entry(entry) is not None]

    def _read_missing(self, session_id: str, stored_id: str, read: ReadTranscript) -> tuple[int, int, list[Entry]]:
        """The last line of the log, the number of the last entry, and the messages that the log does not have.

        Raises SessionError.
        """
        with self._hub.open_log(session_id) as log:
            line = log.last  # before the transcript is read
            last, entries = self._read_new(stored_id, read)
            known = logged_uuids(log, read.line)
        return line, last, [entry for entry in entries if entry.message.get("uuid") not in known]


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
