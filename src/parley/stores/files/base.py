"""The stores in files: one implementation, and a layout that says where the transcripts are.

A log is created with its first entry. The transcripts of subagents are in a folder alongside that of their session,
`<session>/subagents/agent-<id>.jsonl`, and are covered by its lease. A sidecar file, `agent-<id>.meta.json`, names the
tool call that started the agent.

See also: the layouts in `claude.py` and `folder.py`, a log in `transcript.py`, lists and searches in
`session_summary.py`.
"""

from __future__ import annotations

import builtins
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from parley.errors import SessionError, UnknownSession
from parley.protocol.base import Json
from parley.stores.base import AgentInfo, Entry, Info, Log, RepairReport, SearchHit, Store, check_id
from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.lease import BorrowedLease, acquire, is_leased
from parley.stores.files.transcript import AGENT_BELOW, BELOW, Transcript, TranscriptReader
from parley.workspace import private_files


class FileStore(Store):
    """A store without its layout."""

    def __init__(
        self, leases: Path, context: EntryContext, warn: Callable[[str], None], *, waits: bool = False
    ) -> None:
        self._leases = leases
        self._context = context
        self._warn = warn
        self._waits = waits

    # The layout.

    @abstractmethod
    def _find(self, session_id: str) -> Path | None:
        """The transcript of a session. Raises SessionError."""

    @abstractmethod
    def _new_path(self, session_id: str) -> Path:
        """Where the transcript of a new session is written."""

    @abstractmethod
    def _files(self, project: str | None) -> builtins.list[tuple[str, Path]]:
        """The ids and transcripts of the sessions of a project, or of all, most recently written first."""

    @abstractmethod
    def _remove(self, path: Path, session_id: str) -> None:
        """Remove a transcript and what is alongside. Raises OSError."""

    def _make_log(self, transcript: Transcript, path: Path, session_id: str) -> Log:
        return transcript

    # Sessions.

    def exists(self, session_id: str) -> bool:
        return self._find(session_id) is not None

    def _path_of_existing(self, session_id: str) -> Path:
        """Raises UnknownSession."""
        found = self._find(session_id)
        if found is None:
            raise UnknownSession(session_id)
        return found

    def path(self, session_id: str) -> str:
        return str(self._find(session_id) or self._new_path(session_id))

    def is_held(self, session_id: str) -> bool:
        return is_leased(self._leases / check_id(session_id))

    def create(self, session_id: str) -> Log:
        lease = acquire(self._leases / check_id(session_id), session_id)
        path = self._new_path(session_id)
        return self._make_log(Transcript(path, session_id, self._context, lease, self._warn), path, session_id)

    def open(self, session_id: str, *, steal: bool = False) -> Log:
        path = self._path_of_existing(session_id)
        lease = acquire(self._leases / session_id, session_id, steal=steal, takes=True, yields=self._waits)
        return self._make_log(Transcript(path, session_id, self._context, lease, self._warn), path, session_id)

    def read(self, session_id: str, after: int = -1) -> Iterator[Entry]:
        return TranscriptReader(self._path_of_existing(session_id), session_id, self._warn).entries(after)

    def delete(self, session_id: str) -> None:
        path = self._path_of_existing(session_id)
        with acquire(self._leases / session_id, session_id):
            try:
                self._remove(path, session_id)
            except OSError as exc:
                raise SessionError(f"cannot delete the session at {path}: {exc.strerror}") from None

    def repair(self, session_id: str) -> RepairReport | None:
        from parley.stores.files.repair import repair_file

        path = self._path_of_existing(session_id)
        with acquire(self._leases / session_id, session_id):
            return repair_file(path, session_id)

    # Lists and searches. Their module is loaded late, because most sessions need none of it.

    def newest(self) -> str | None:
        latest = self.list(self._context.cwd, limit=1)
        return latest[0].id if latest else None

    def info(self, session_id: str) -> Info | None:
        from parley.stores.files.session_summary import summarize

        found = self._find(session_id)
        return summarize(found, session_id) if found is not None else None

    def list(self, project: str | None = None, limit: int | None = None, offset: int = 0) -> builtins.list[Info]:
        from parley.stores.files.session_summary import list_page

        return list_page(self._files(project), limit, offset)

    def rename(self, session_id: str, title: str) -> None:
        self._label(session_id, {"type": "custom-title", "customTitle": title, "sessionId": session_id})

    def tag(self, session_id: str, tag: str | None) -> None:
        self._label(session_id, {"type": "tag", "tag": tag or "", "sessionId": session_id})

    def _label(self, session_id: str, line: Json) -> None:
        from parley.stores.files.session_summary import append_label

        append_label(self._path_of_existing(session_id), line)

    def search(self, text: str, limit: int = 20) -> builtins.list[SearchHit]:
        from parley.stores.files.session_summary import search_files

        return search_files(self._files(None), text, limit)

    # Subagents.

    def agent_log(self, session_id: str, agent_id: str, meta: Json | None) -> Log:
        path = agent_path(self.path(session_id), agent_id)
        context = msgspec.structs.replace(self._context, agent_id=agent_id)
        if meta is not None:
            try:
                private_files.write(path.with_suffix(".meta.json"), msgspec.json.encode(meta), below=AGENT_BELOW)
            except OSError as exc:
                raise SessionError(f"cannot create the subagent transcript {path}: {exc.strerror}") from None
        return Transcript(path, session_id, context, BorrowedLease(), self._warn)

    def agents(self, session_id: str) -> builtins.list[AgentInfo]:
        found = sorted((Path(self.path(session_id)).with_suffix("") / "subagents").glob("agent-*.jsonl"))
        return [AgentInfo(id=path.stem.removeprefix("agent-"), meta=read_meta(path)) for path in found]

    def read_agent(self, session_id: str, agent_id: str) -> Iterator[Entry]:
        path = agent_path(self.path(session_id), agent_id)
        return TranscriptReader(path, session_id, self._warn, of_agent=True).entries()


def agent_path(session_path: str, agent_id: str) -> Path:
    return Path(session_path).with_suffix("") / "subagents" / f"agent-{check_id(agent_id)}.jsonl"


def read_meta(path: Path) -> Json:
    """The content of the sidecar file; {} if it cannot be read."""
    try:
        data = private_files.read(path.with_suffix(".meta.json"), below=AGENT_BELOW)
        return msgspec.json.decode(data, type=Json)
    except (OSError, msgspec.DecodeError):
        return {}


@contextmanager
def translate_os_errors() -> Iterator[None]:
    """Translate errors of directory listings to SessionError."""
    try:
        yield
    except private_files.UnsafeFile as exc:
        raise SessionError(exc.strerror) from None
    except OSError as exc:
        raise SessionError(f"cannot access sessions in {exc.filename}: {exc.strerror}") from None


def log_exists(path: Path) -> bool:
    """Whether the log file exists. Raises OSError, and UnsafeFile if the file is not ours."""
    try:
        private_files.stat_file(path, below=BELOW)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
