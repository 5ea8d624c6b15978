"""The transcripts of an engine, kept in memory and written to the log of its session.

The engine waits for `sync` before an effect and before a result, so both are in the log first.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator

import msgspec

from parley.cluster.session_log.writer import SessionWriter
from parley.errors import SessionBusy, SessionError, UnknownSession
from parley.gateway.session_log.records import AgentRecord, AnyRecord, EntryRecord, LabelRecord, TranscriptDeletedRecord
from parley.gateway.session_log.state import Transcript
from parley.protocol.base import Json
from parley.stores.base import TAKEN_OVER, AgentInfo, Entry, Info, Log, RepairReport, SearchHit, Store, check_id
from parley.stores.search_text import search_entries, summarize_entries


class EngineLog(Log):
    """The transcript of a session or a subagent, held by its only writer."""

    def __init__(self, store: EngineStore, session_id: str, agent: str, release: Callable[[EngineLog], None]) -> None:
        self._store = store
        self._session_id = session_id
        self._agent = agent
        self._release = release
        self._position = 0
        self.is_lost = False
        """Whether another holder took it over."""

    def append(self, *entries: Entry) -> None:
        if self.is_lost:
            raise SessionBusy(self._session_id, TAKEN_OVER)
        for entry in entries:
            self._position = self._store.append(self._session_id, self._agent, entry)

    def sync(self) -> None:
        self._store.wait_in_thread(self._position)

    async def wait_synced(self) -> None:
        await self._store.wait_committed(self._position)

    def entries(self, after: int = -1) -> Iterator[Entry]:
        return self._store.find_entries(self._session_id, self._agent, after)

    def close(self) -> None:
        self._release(self)


class EngineStore(Store):
    """The store of one session of the gateway. Its engine may begin further transcripts, with `/clear`."""

    def __init__(self, transcripts: dict[str, Transcript], recorder: SessionWriter | None, cwd: str = "") -> None:
        """Without a recorder, nothing is written: for a copy that is recorded when it is complete."""
        self.transcripts = transcripts
        self._recorder = recorder
        self._cwd = cwd
        self._holders: dict[str, EngineLog] = {}
        self._is_closed = False

    def close(self) -> None:
        """Take nothing more: the session moves to another host, whatever its engine still does."""
        self._is_closed = True

    def append(self, session_id: str, agent: str, entry: Entry) -> int:
        """Returns the position in the log."""
        position = self._record(EntryRecord(session=session_id, agent=agent, entry=entry))
        self.transcripts.setdefault(session_id, Transcript()).log(agent).append(entry)
        return position

    def wait_in_thread(self, position: int) -> None:
        """Wait until the records up to a position are in the log."""
        if self._recorder is not None:
            self._recorder.wait_in_thread(position)

    async def wait_committed(self, position: int) -> None:
        """The same in the event loop."""
        if self._recorder is not None:
            await self._recorder.wait_committed(position)

    def _record(self, record: AnyRecord) -> int:
        if self._is_closed:
            raise SessionError("the session moves to another host")
        return 0 if self._recorder is None else self._recorder.add(record)

    def find_entries(self, session_id: str, agent: str, after: int = -1) -> Iterator[Entry]:
        found = self.transcripts.get(session_id)
        if found is None:
            return iter(())
        entries = found.agent_entries.get(agent, []) if agent else found.entries
        return iter([entry for entry in entries if entry.seq > after])

    def _find(self, session_id: str) -> Transcript:
        found = self.transcripts.get(session_id)
        if found is None or not found.entries:
            raise UnknownSession(session_id)
        return found

    # Transcripts.

    def exists(self, session_id: str) -> bool:
        found = self.transcripts.get(session_id)
        return found is not None and bool(found.entries)

    def is_held(self, session_id: str) -> bool:
        return session_id in self._holders

    def create(self, session_id: str) -> EngineLog:
        return self._hold(check_id(session_id), steal=False)

    def open(self, session_id: str, *, steal: bool = False) -> EngineLog:
        self._find(session_id)
        return self._hold(session_id, steal=steal)

    def _hold(self, session_id: str, *, steal: bool) -> EngineLog:
        holder = self._holders.get(session_id)
        if holder is not None:
            if not steal:
                raise SessionBusy(session_id, "this host")
            holder.is_lost = True
        log = self._holders[session_id] = EngineLog(self, session_id, "", lambda log: self._release(session_id, log))
        return log

    def _release(self, session_id: str, log: EngineLog) -> None:
        if self._holders.get(session_id) is log:
            del self._holders[session_id]

    def read(self, session_id: str, after: int = -1) -> Iterator[Entry]:
        self._find(session_id)
        return self.find_entries(session_id, "", after)

    def newest(self) -> str | None:
        times = {id: found.entries[-1].at for id, found in self.transcripts.items() if found.entries}
        return max(times, key=lambda name: times[name], default=None)

    def info(self, session_id: str) -> Info | None:
        found = self.transcripts.get(session_id)
        if found is None:
            return None
        label = found.label or LabelRecord(session=session_id)
        return summarize_entries(session_id, self._cwd, found.entries, label.title, label.title_at, label.tag)

    def list(self, project: str | None = None, limit: int | None = None, offset: int = 0) -> builtins.list[Info]:
        if project not in (None, self._cwd):
            return []
        infos = [info for id in self.transcripts if (info := self.info(id)) is not None]
        return sorted(infos, key=lambda info: info.modified, reverse=True)[offset:][:limit]

    def rename(self, session_id: str, title: str) -> None:
        found = self._find(session_id)
        before = found.label or LabelRecord(session=session_id)
        self._label(found, msgspec.structs.replace(before, title=title, title_at=len(found.entries)))

    def tag(self, session_id: str, tag: str | None) -> None:
        found = self._find(session_id)
        before = found.label or LabelRecord(session=session_id)
        self._label(found, msgspec.structs.replace(before, tag=tag or None))

    def _label(self, found: Transcript, label: LabelRecord) -> None:
        self._record(label)
        found.label = label

    def delete(self, session_id: str) -> None:
        self._find(session_id)
        if session_id in self._holders:
            raise SessionBusy(session_id, "this host")
        self._record(TranscriptDeletedRecord(session=session_id))
        del self.transcripts[session_id]

    def repair(self, session_id: str) -> RepairReport | None:
        self._find(session_id)
        return None

    # Subagents.

    def agent_log(self, session_id: str, agent_id: str, meta: Json | None) -> EngineLog:
        if meta is not None:
            self._record(AgentRecord(session=session_id, agent=agent_id, meta=meta))
            self.transcripts.setdefault(session_id, Transcript()).agents[agent_id] = meta
        return EngineLog(self, session_id, agent_id, lambda log: None)

    def agents(self, session_id: str) -> builtins.list[AgentInfo]:
        found = self.transcripts.get(session_id, Transcript())
        return [AgentInfo(id=id, meta=meta) for id, meta in found.agents.items()]

    def read_agent(self, session_id: str, agent_id: str) -> Iterator[Entry]:
        return self.find_entries(session_id, agent_id)

    def search(self, text: str, limit: int = 20) -> builtins.list[SearchHit]:
        newest_first = ((id, found.entries) for id, found in reversed(self.transcripts.items()))
        return search_entries(newest_first, text, limit)

    def path(self, session_id: str) -> str:
        return ""
