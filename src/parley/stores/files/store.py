"""The stores in files: one implementation, and layouts that say where the transcripts are.

Claude Code's layout is `<config>/projects/<project>/<session>.jsonl`. The session functions of the official SDKs read
these files directly, so our lines have the fields that they need: `type`, `uuid`, `parentUuid`, `sessionId`,
`timestamp`, `message`. Files are private to the user (0600). `<config>/leases/<session>` names the process that holds
a session. A transcript is created with its first entry.

The transcripts of subagents are in a folder alongside that of their session, `<session>/subagents/agent-<id>.jsonl`,
and are covered by its lease. A sidecar file, `agent-<id>.meta.json`, names the tool call that started the agent.

See also: the other layout in `folder.py`, a log in `transcript.py`, lists and searches in `session_summary.py`.
"""

from __future__ import annotations

import builtins
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import msgspec

from parley.errors import SessionError, explain_os_errors
from parley.protocol.base import Json
from parley.stores.base import (
    AgentInfo,
    Entry,
    Info,
    Label,
    Log,
    RepairReport,
    SearchHit,
    Store,
    StoreSetup,
    check_id,
    is_id,
)
from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.transcript import AGENT_BELOW, BELOW, Transcript, TranscriptReader
from parley.stores.lease import BorrowedLease, acquire, is_leased
from parley.workspace import private_files

LONGEST_KEY = 200
"""The length of a project's directory name, without the checksum that is added to longer names."""


class FileStore(Store):
    """A store without its layout."""

    def __init__(
        self, leases: Path, context: EntryContext, warn: Callable[[str], None], *, waits: bool = False
    ) -> None:
        super().__init__(context.cwd)
        self._leases = leases
        self._context = context
        self._warn = warn
        self._waits = waits
        self._listed: dict[Path, tuple[int, int, Info | None]] = {}
        """What lists had of transcripts, with the times of their last change and their sizes."""

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
    def _remove_files(self, path: Path, session_id: str) -> None:
        """Remove a transcript and what is alongside. Raises OSError."""

    def _locate(self, session_id: str) -> Path:
        return self._find(session_id) or self._new_path(session_id)

    # Sessions.

    def exists(self, session_id: str) -> bool:
        return self._find(session_id) is not None

    def path(self, session_id: str) -> str:
        return str(self._locate(session_id))

    def is_held(self, session_id: str) -> bool:
        return is_leased(self._leases / check_id(session_id))

    def _hold(self, session_id: str, *, resumes: bool = False, steal: bool = False) -> Log:
        path = self._locate(session_id) if resumes else self._new_path(session_id)
        yields = resumes and self._waits
        lease = acquire(self._leases / session_id, session_id, steal=steal, takes=resumes, yields=yields)
        return Transcript(path, session_id, self._context, lease, self._warn)

    def _entries(self, session_id: str, agent_id: str = "", after: int = -1) -> Iterator[Entry]:
        path = self._locate(session_id)
        if agent_id:
            path = agent_path(str(path), agent_id)
        return TranscriptReader(path, session_id, self._warn, of_agent=bool(agent_id)).entries(after)

    def _remove(self, session_id: str) -> None:
        path = self._locate(session_id)
        with explain_os_errors(f"cannot delete the session at {path}"):
            self._remove_files(path, session_id)

    def _repair(self, session_id: str) -> RepairReport | None:
        from parley.stores.files.repair import repair_file

        return repair_file(self._locate(session_id), session_id)

    def agent_log(self, session_id: str, agent_id: str, meta: Json | None) -> Log:
        path = agent_path(self.path(session_id), agent_id)
        context = msgspec.structs.replace(self._context, agent_id=agent_id)
        if meta is not None:
            with explain_os_errors(f"cannot create the subagent transcript {path}"):
                private_files.write(path.with_suffix(".meta.json"), msgspec.json.encode(meta), below=AGENT_BELOW)
        return Transcript(path, session_id, context, BorrowedLease(), self._warn)

    # Lists and searches. Their module is loaded late, because most sessions need none of it.

    def info(self, session_id: str) -> Info | None:
        from parley.stores.files.session_summary import summarize

        found = self._find(session_id)
        return summarize(found, session_id) if found is not None else None

    def list(self, project: str | None = None, limit: int | None = None, offset: int = 0) -> builtins.list[Info]:
        found = (info for session_id, path in self._files(project) if (info := self._summarize(path, session_id)))
        return builtins.list(islice(found, offset, None if limit is None else offset + limit))

    def _summarize(self, path: Path, session_id: str) -> Info | None:
        """The list entry of a transcript, which is read again only when it has changed."""
        from parley.stores.files.session_summary import summarize

        try:
            status = os.stat(path, follow_symlinks=False)
        except OSError:
            return None
        changed, size, info = self._listed.get(path, (0, -1, None))
        if (changed, size) != (status.st_ctime_ns, status.st_size):
            info = summarize(path, session_id)
            self._listed[path] = status.st_ctime_ns, status.st_size, info
        return info

    def _label(self, session_id: str, label: Label, text: str | None) -> None:
        from parley.stores.files.session_summary import append_label

        line: Json = {"type": "tag", "tag": text or ""}
        if label == "title":
            line = {"type": "custom-title", "customTitle": text or ""}
        append_label(self._locate(session_id), {**line, "sessionId": session_id})

    def search(self, text: str, limit: int = 20) -> builtins.list[SearchHit]:
        from parley.stores.files.session_summary import sound_entries
        from parley.stores.search_text import search_entries

        found = ((session_id, sound_entries(path, session_id)) for session_id, path in self._files(None))
        return search_entries(found, text, limit)

    def agents(self, session_id: str) -> builtins.list[AgentInfo]:
        from parley.stores.files.session_summary import list_agents

        return list_agents(Path(self.path(session_id)))


def agent_path(session_path: str, agent_id: str) -> Path:
    return Path(session_path).with_suffix("") / "subagents" / f"agent-{check_id(agent_id)}.jsonl"


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


class ClaudeStore(FileStore):
    """The sessions of one project below one configuration directory."""

    def __init__(
        self,
        config: Path,
        context: EntryContext,
        warn: Callable[[str], None] = lambda text: None,
        *,
        waits: bool = False,
    ) -> None:
        super().__init__(config / "leases", context, warn, waits=waits)
        self._projects = config / "projects"
        self._folder = self._projects / project_key(context.cwd)

    @classmethod
    def from_setup(cls, setup: StoreSetup) -> ClaudeStore:
        return cls(setup.path, setup.context, setup.warn, waits=setup.waits)

    def _new_path(self, session_id: str) -> Path:
        return self._folder / f"{session_id}.jsonl"

    def _find(self, session_id: str) -> Path | None:
        """The session's file, in this project or else in any other."""
        if not is_id(session_id):
            return None
        here = self._new_path(session_id)
        with translate_os_errors():
            if log_exists(here):
                return here
            elsewhere = sorted(self._projects.glob(f"*/{session_id}.jsonl"))
            return next(filter(log_exists, elsewhere), None)

    def _files(self, project: str | None) -> builtins.list[tuple[str, Path]]:
        from parley.stores.files.session_summary import sort_by_age

        folder = "*" if project is None else project_key(project)
        with translate_os_errors():
            found = sort_by_age(self._projects.glob(f"{folder}/*.jsonl"), self._warn)
        # Older versions of Claude Code store the transcripts of subagents alongside those of sessions.
        return [(file.stem, file) for file in found if is_id(file.stem) and not file.stem.startswith("agent-")]

    def _remove_files(self, path: Path, session_id: str) -> None:
        import shutil

        with private_files.open_folder(path.parent, below=BELOW) as (folder, _):
            with suppress(FileNotFoundError):
                os.unlink(path.name, dir_fd=folder)
            # The transcripts of its subagents are in a directory alongside.
            shutil.rmtree(session_id, ignore_errors=True, dir_fd=folder)


def project_key(cwd: str) -> str:
    """The directory name of a project: its path with dashes for all characters but letters and digits."""
    path = normalize(os.path.realpath(cwd))
    key = "".join(char if char.isascii() and char.isalnum() else "-" for char in path)
    return key if len(key) <= LONGEST_KEY else f"{key[:LONGEST_KEY]}-{base36(abs(hash32(path)))}"


def normalize(text: str) -> str:
    """Apply Unicode NFC, as the other readers of the layout do."""
    if text.isascii():
        return text
    import unicodedata

    return unicodedata.normalize("NFC", text)


def hash32(text: str) -> int:
    """JavaScript's usual string hash: `h * 31 + c` over UTF-16 units, in 32 signed bits."""
    value = 0
    units = text.encode("utf-16-le")
    for at in range(0, len(units), 2):
        value = (value * 31 + int.from_bytes(units[at : at + 2], "little")) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def base36(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
        if number == 0:
            return digits
