"""The store interface: one append-only, numbered log per session. A session's state is a fold over its log.

`Store` opens, lists and searches sessions; `Log` is the handle of the one writer. The implementations are in
`files/`, `sql/` and `memory.py`; `session_open.py` applies `--resume`, `--continue` and `--fork-session`.
"""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from parley.errors import SessionError, UnknownSession
from parley.protocol.base import Json, Struct

if TYPE_CHECKING:
    from pathlib import Path

    from parley.stores.files.entry_codec import EntryContext

ANNOUNCED_KINDS = ("user", "assistant", "result")
"""The entry kinds that are also wire messages."""
USAGE = "usage"
"""The entry kind with the final figures of a model response: its `id`, usage and stop reason."""
FOREIGN = "foreign"
"""Context key of an assistant entry that another program wrote or copied: no decisions on its calls are recorded."""
Label = Literal["title", "tag"]
"""What may be said of a session from outside."""
ID_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
MAX_ID_CHARACTERS = 128
TAKEN_OVER = "the process that took it over"
"""The holder that `SessionBusy` names after `--steal`."""


class Entry(Struct, frozen=True, kw_only=True):
    """One record of a log.

    Kinds: `user` and `assistant` (the message as sent to the client, as JSON), `result`, `prompt` (the system prompt),
    `system` (a `compact_boundary`) and `conversation_reset`, after which a new conversation starts. Readers skip
    unknown kinds.
    """

    seq: int
    kind: str
    at: str
    """UTC, ISO 8601."""
    message: Json
    context: Json = {}
    """Fields to store alongside the message, for example the permission mode of a prompt."""


class Info(Struct, frozen=True, kw_only=True):
    """A session in a list. A field is None if it is not set or not known without reading the whole log."""

    id: str
    cwd: str
    """The directory the session was started in: its project."""
    title: str | None = None
    first_prompt: str | None = None
    created: str
    modified: str
    """Both UTC, ISO 8601."""
    size_bytes: int
    messages: int | None = None
    """The number of user and assistant entries."""
    tag: str | None = None
    git_branch: str | None = None

    @property
    def shown_title(self) -> str:
        """What lists show as the title."""
        return self.title or self.first_prompt or ""


class SearchHit(Struct, frozen=True, kw_only=True):
    """An entry that matches a search."""

    id: str
    seq: int
    kind: str
    at: str
    excerpt: str


class RepairReport(Struct, frozen=True, kw_only=True):
    """The outcome of a repair."""

    kept_bytes: int
    aside_bytes: int
    aside: str
    """Where the damaged part was moved: a file, or the key of the entries in a database."""


class AgentInfo(Struct, frozen=True, kw_only=True):
    """A subagent whose transcript is stored with its session."""

    id: str
    meta: Json
    """The agent's type and the tool call that started it."""


class Log(ABC):
    """The log of one session, held by its only writer. Entries are numbered in ascending order."""

    @abstractmethod
    def append(self, *entries: Entry) -> None:
        """Append entries that belong together. When this returns, the operating system (or database server) has them.

        Raises SessionError, or SessionBusy if another process took the session over; then none of them was appended.
        """

    @abstractmethod
    def sync(self) -> None:
        """Wait until all appended entries are on disk. Raises SessionError. May be called in another thread."""

    async def wait_synced(self) -> None:
        """The same without blocking the event loop. Raises SessionError."""
        from parley._threads import run_in_thread

        await run_in_thread(self.sync)

    @abstractmethod
    def entries(self, after: int = -1) -> Iterator[Entry]:
        """Yield the entries with `seq > after`, in order. Raises SessionError, DamagedSession."""

    @abstractmethod
    def close(self) -> None:
        """Close the log and release the session."""


class WrappedLog(Log):
    """A log that does something besides. Subclasses override what they add to."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def append(self, *entries: Entry) -> None:
        self.log.append(*entries)

    def sync(self) -> None:
        self.log.sync()

    async def wait_synced(self) -> None:
        await self.log.wait_synced()

    def entries(self, after: int = -1) -> Iterator[Entry]:
        return self.log.entries(after)

    def close(self) -> None:
        self.log.close()


class StoreSetup(Struct, frozen=True):
    """What a store is opened with."""

    place: str
    """What follows the colon of `--store NAME:PLACE`, or the address; empty for the store's own place."""
    path: Path
    """The same as a path, seen from the working directory; without a place, the config folder."""
    context: EntryContext
    warn: Callable[[str], None]
    """Writes a line to stderr."""
    waits: bool = False
    """Whether the engine waits for prompts of a client, which may resume a session twice. The second engine gets it."""


class Store(ABC):
    """All sessions in one directory or database.

    The methods before `exists` are what a store implements; the others follow from them. Those that begin with an
    underscore get ids that were checked.
    """

    def __init__(self, cwd: str) -> None:
        self.cwd = cwd
        """The directory of the session that opened the store: its project."""

    @abstractmethod
    def info(self, session_id: str) -> Info | None:
        """The list entry of a session, or None if it does not exist."""

    @abstractmethod
    def list(self, project: str | None = None, limit: int | None = None, offset: int = 0) -> builtins.list[Info]:
        """The sessions of a project directory, or of all projects, most recently written first."""

    @abstractmethod
    def is_held(self, session_id: str) -> bool:
        """Whether a process seems to hold the session. Does not lock anything."""

    @abstractmethod
    def _hold(self, session_id: str, *, resumes: bool = False, steal: bool = False) -> Log:
        """Hold a session, whether or not it exists. Nothing is stored before the first entry. Raises SessionBusy."""

    @abstractmethod
    def _entries(self, session_id: str, agent_id: str = "", after: int = -1) -> Iterator[Entry]:
        """Yield the entries with `seq > after` of a session, or of a subagent. Raises SessionError, DamagedSession."""

    @abstractmethod
    def _label(self, session_id: str, label: Label, text: str | None) -> None:
        """Set or remove a label, even while another process holds the session. Raises SessionError."""

    @abstractmethod
    def _remove(self, session_id: str) -> None:
        """Delete a session that we hold, and its subagents' logs. Raises SessionError."""

    def _repair(self, session_id: str) -> RepairReport | None:
        """Truncate the log of a session that we hold before its first damaged record, and move the rest aside."""
        return None

    @abstractmethod
    def agent_log(self, session_id: str, agent_id: str, meta: Json | None) -> Log:
        """Create a log for a subagent of a session that the caller holds; if `meta` is None, open the existing one.

        Raises SessionError.
        """

    @abstractmethod
    def agents(self, session_id: str) -> builtins.list[AgentInfo]:
        """The subagents with a stored transcript, in no particular order."""

    def search(self, text: str, limit: int = 20) -> builtins.list[SearchHit]:
        """Find messages that contain all the words of `text`, ignoring case; newest first."""
        from parley.stores.search_text import search_entries

        return search_entries(((info.id, self._entries(info.id)) for info in self.list()), text, limit)

    def ranked(self, text: str, limit: int, session_id: str | None = None) -> builtins.list[SearchHit]:
        """Find messages that contain some of the words of `text`, best first, in one session or in all.

        Without an index that ranks: all the words in all sessions, or a scan of one session. Raises SessionError.
        """
        if session_id is None:
            return self.search(text, limit)
        from parley.stores.search_text import rank_entries

        return rank_entries(session_id, self.read(session_id), text, limit)

    def path(self, session_id: str) -> str:
        """The transcript's path, for clients and hooks; "" if there is no file."""
        return ""

    def exists(self, session_id: str) -> bool:
        return self.info(session_id) is not None

    def check_exists(self, session_id: str) -> None:
        """Raises UnknownSession."""
        if not self.exists(session_id):
            raise UnknownSession(session_id)

    def newest(self) -> str | None:
        """The id of the most recently written session of this project."""
        return next((info.id for info in self.list(self.cwd, limit=1)), None)

    def create(self, session_id: str) -> Log:
        """Create an empty log and hold it. Nothing is stored before the first entry. Raises SessionBusy."""
        return self._hold(check_id(session_id))

    def open(self, session_id: str, *, steal: bool = False) -> Log:
        """Open an existing log and hold it. Raises UnknownSession, SessionBusy.

        `steal` takes it from the current holder, which can then no longer write.
        """
        self.check_exists(session_id)
        return self._hold(session_id, resumes=True, steal=steal)

    def read(self, session_id: str, after: int = -1) -> Iterator[Entry]:
        """Yield the entries with `seq > after` without holding the log.

        Raises UnknownSession, SessionError, DamagedSession.
        """
        self.check_exists(session_id)
        return self._entries(session_id, "", after)

    def read_agent(self, session_id: str, agent_id: str) -> Iterator[Entry]:
        """Yield the entries of a subagent; none if it has no log. Raises SessionError, DamagedSession."""
        return self._entries(session_id, check_id(agent_id))

    def rename(self, session_id: str, title: str) -> None:
        """Set the title, even while another process holds the session. Raises UnknownSession, SessionError."""
        self.check_exists(session_id)
        self._label(session_id, "title", title)

    def tag(self, session_id: str, tag: str | None) -> None:
        """Set or remove the tag, even while another process holds the session. Raises UnknownSession, SessionError."""
        self.check_exists(session_id)
        self._label(session_id, "tag", tag or None)

    def delete(self, session_id: str) -> None:
        """Delete the session and its subagents' logs. Raises UnknownSession, SessionBusy, SessionError."""
        self.check_exists(session_id)
        with closing(self._hold(session_id)):
            self._remove(session_id)

    def repair(self, session_id: str) -> RepairReport | None:
        """Truncate the log before its first damaged record and move the rest aside. Returns None if the log is intact.

        Raises UnknownSession, SessionBusy, SessionError.
        """
        self.check_exists(session_id)
        with closing(self._hold(session_id)):
            return self._repair(session_id)


def later_time(at: str, last: str) -> str:
    """Return `at`, or one millisecond after `last` if `at` is not later. Both are ISO 8601 strings."""
    if at > last:
        return at
    if last[19:20] == "." and last[23:] == "Z" and last[20:23] < "999" and last[20:23].isdecimal():
        return f"{last[:20]}{int(last[20:23]) + 1:03d}Z"  # the usual form, without a carry
    from datetime import datetime, timedelta

    try:
        after = datetime.fromisoformat(last) + timedelta(milliseconds=1)
        return after.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return at


def is_id(text: str) -> bool:
    """Whether a text may be the id of a session.

    Ids come from outside and become file names. They must not leave the directory or act as a glob pattern.
    """
    return 0 < len(text) <= MAX_ID_CHARACTERS and text[0] not in ".-" and ID_CHARACTERS.issuperset(text)


def check_id(session_id: str) -> str:
    """Return the id if it is safe as a file name. Raises SessionError."""
    if not is_id(session_id):
        raise SessionError(
            f"invalid session id {session_id!r}: use up to {MAX_ID_CHARACTERS} letters, digits, '_', '-' and '.', "
            "starting with a letter, a digit or '_'"
        )
    return session_id


def copy_entries(entries: Iterable[Entry], session_id: str) -> Iterator[Entry]:
    """Yield the entries with the id of another session in their wire messages.

    Permission grants keep the id of the old session, so they are not valid in the copy.
    """
    for entry in entries:
        has_id = entry.kind in ANNOUNCED_KINDS and "session_id" in entry.message
        yield replace(entry, message={**entry.message, "session_id": session_id}) if has_id else entry
