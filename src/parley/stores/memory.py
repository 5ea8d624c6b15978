"""A store in memory, for `--no-session-persistence` and tests. Its sessions end with the process."""

from __future__ import annotations

import builtins
from collections.abc import Iterator

import msgspec

from parley.errors import SessionBusy
from parley.protocol.base import Json, Struct
from parley.stores.base import TAKEN_OVER, AgentInfo, Entry, Info, Label, Log, Store, StoreSetup
from parley.stores.search_text import summarize_entries


class StoredTranscript(Struct):
    """A session: its entries, those of its subagents, and what others have said of it."""

    entries: list[Entry] = msgspec.field(default_factory=list)
    agents: dict[str, Json] = msgspec.field(default_factory=dict)
    """What is known of each subagent."""
    agent_entries: dict[str, list[Entry]] = msgspec.field(default_factory=dict)
    title: str | None = None
    title_at: int = 0
    """How many entries there were when the title was given. A later title among them takes precedence."""
    tag: str | None = None

    def log(self, agent: str) -> list[Entry]:
        """The entries of a subagent, or of the session itself if it is empty."""
        return self.agent_entries.setdefault(agent, []) if agent else self.entries


class MemoryLog(Log):
    def __init__(self, store: MemoryStore, session_id: str, agent_id: str = "") -> None:
        self._store = store
        self._session_id = session_id
        self._agent_id = agent_id
        self._position = 0

    def append(self, *entries: Entry) -> None:
        if not self._agent_id and self._store.holders.get(self._session_id) is not self:
            raise SessionBusy(self._session_id, TAKEN_OVER)
        self._position = self._store.append(self._session_id, self._agent_id, *entries)

    def sync(self) -> None:
        self._store.sync(self._position)

    async def wait_synced(self) -> None:
        await self._store.wait_synced(self._position)

    def entries(self, after: int = -1) -> Iterator[Entry]:
        return self._store.find_entries(self._session_id, self._agent_id, after)

    def close(self) -> None:
        if self._store.holders.get(self._session_id) is self:
            del self._store.holders[self._session_id]


class MemoryStore(Store):
    holder = "this process"
    """Who holds a session, for errors."""

    def __init__(self, cwd: str = "", transcripts: dict[str, StoredTranscript] | None = None) -> None:
        super().__init__(cwd)
        self.transcripts = {} if transcripts is None else transcripts
        self.holders: dict[str, MemoryLog] = {}

    @classmethod
    def from_setup(cls, setup: StoreSetup) -> MemoryStore:
        return cls(setup.context.cwd)

    # What a store does that keeps its transcripts elsewhere as well.

    def append(self, session_id: str, agent_id: str, *entries: Entry) -> int:
        """Returns the position to wait for."""
        self.transcripts.setdefault(session_id, StoredTranscript()).log(agent_id).extend(entries)
        return 0

    def sync(self, position: int) -> None:
        """Nothing to do: nothing is ever on disk."""

    async def wait_synced(self, position: int) -> None:
        """The same."""

    def _label(self, session_id: str, label: Label, text: str | None) -> None:
        transcript = self.transcripts[session_id]
        if label == "tag":
            transcript.tag = text
        else:
            transcript.title, transcript.title_at = text, len(transcript.entries)

    def _remove(self, session_id: str) -> None:
        del self.transcripts[session_id]

    def agent_log(self, session_id: str, agent_id: str, meta: Json | None) -> Log:
        if meta is not None:
            self.transcripts.setdefault(session_id, StoredTranscript()).agents[agent_id] = meta
        return MemoryLog(self, session_id, agent_id)

    # The rest of a store.

    def find_entries(self, session_id: str, agent_id: str = "", after: int = -1) -> Iterator[Entry]:
        transcript = self.transcripts.get(session_id, StoredTranscript())
        entries = transcript.agent_entries.get(agent_id, ()) if agent_id else transcript.entries
        return iter([entry for entry in entries if entry.seq > after])

    _entries = find_entries

    def exists(self, session_id: str) -> bool:
        return bool(self.transcripts.get(session_id, StoredTranscript()).entries)

    def info(self, session_id: str) -> Info | None:
        found = self.transcripts.get(session_id, StoredTranscript())
        return summarize_entries(session_id, self.cwd, found.entries, found.title, found.title_at, found.tag)

    def list(self, project: str | None = None, limit: int | None = None, offset: int = 0) -> builtins.list[Info]:
        if project not in (None, self.cwd):
            return []
        # Of two that were written at the same time, the later one comes first.
        infos = [info for session_id in reversed(self.transcripts) if (info := self.info(session_id)) is not None]
        return sorted(infos, key=lambda info: info.modified, reverse=True)[offset:][:limit]

    def is_held(self, session_id: str) -> bool:
        return session_id in self.holders

    def _hold(self, session_id: str, *, resumes: bool = False, steal: bool = False) -> Log:
        if session_id in self.holders and not steal:
            raise SessionBusy(session_id, self.holder)
        log = self.holders[session_id] = MemoryLog(self, session_id)
        return log

    def agents(self, session_id: str) -> builtins.list[AgentInfo]:
        found = self.transcripts.get(session_id, StoredTranscript())
        return [AgentInfo(id=agent_id, meta=meta) for agent_id, meta in found.agents.items()]
