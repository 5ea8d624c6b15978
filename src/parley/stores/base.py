"""Where sessions are kept: an append-only, numbered log each. State is a fold over it."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from msgspec.structs import replace

from parley.errors import SessionError
from parley.protocol.base import Json, Struct

if TYPE_CHECKING:
    from pathlib import Path

    from parley.stores.files.entry_codec import EntryContext

ANNOUNCED_KINDS = ("user", "assistant", "result")
"""The kinds of entries that are lines of the wire."""
USAGE = "usage"
"""The kind of an entry that says how an answer ended: its `id`, and what of its message is final."""
FOREIGN = "foreign"
"""In the context of an answer that another engine wrote or copied: of its calls nothing else is on record."""
ID_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
"""Ids come from outside and become file names: they must not lead out of the folder, nor be a pattern."""


class Entry(Struct, frozen=True, kw_only=True):
    """One record of a log.

    Kinds: `user` and `assistant` (the line that was or will be told, as JSON), `result`,
    `prompt` (the system prompt the session runs with), `system` (a `compact_boundary`) and
    `conversation_reset`, behind which the conversation begins anew. Readers skip kinds they do not know.
    """

    seq: int
    kind: str
    at: str
    """UTC, ISO 8601."""
    message: Json
    context: Json = {}
    """What a layout wants to know beside the message, e.g. the permission mode of a prompt."""


class Info(Struct, frozen=True, kw_only=True):
    """A session in a list. None: not set, or not known without reading all of it."""

    id: str
    cwd: str
    """The folder it was begun in: its project."""
    title: str | None = None
    first_prompt: str | None = None
    created: str
    modified: str
    """Both UTC, ISO 8601."""
    size_bytes: int
    messages: int | None = None
    """How many entries of user and assistant there are."""
    tag: str | None = None
    git_branch: str | None = None


class SearchHit(Struct, frozen=True, kw_only=True):
    """An entry in which something was found."""

    id: str
    seq: int
    kind: str
    at: str
    excerpt: str


class RepairReport(Struct, frozen=True, kw_only=True):
    """What a repair did."""

    kept_bytes: int
    aside_bytes: int
    aside: str
    """Where that is: a file, or for databases the name of the entries."""


class AgentInfo(Struct, frozen=True, kw_only=True):
    """A subagent of a session, whose transcript is kept with it."""

    id: str
    meta: Json
    """Which kind it is, and which call it belongs to."""


class Log(Protocol):
    """The log of one session, held by its one writer."""

    def append(self, entry: Entry) -> None:
        """Keep it. When this returns, the entry is with the operating system.

        Raises SessionError, SessionBusy if somebody else took the session over.
        """

    def sync(self) -> None:
        """Wait until what was appended is on the device. Raises SessionError."""

    def entries(self, after: int = -1) -> Iterator[Entry]:
        """The entries with a higher number, in their order. Raises SessionError, DamagedSession."""

    def close(self) -> None:
        """Let go of the log and of the session."""


class StoreSetup(Struct, frozen=True):
    """What a store is opened with."""

    place: str
    """What follows the colon of `--store NAME:PLACE`, or the address; empty for the store's own place."""
    path: Path
    """The same as a path, seen from the working directory; without a place, the config folder."""
    context: EntryContext
    warn: Callable[[str], None]
    """Writes a line to stderr."""


class Store(Protocol):
    """All sessions of one place."""

    def exists(self, session_id: str) -> bool: ...

    def is_held(self, session_id: str) -> bool:
        """Whether somebody seems to hold it. Nobody is kept from it by this."""

    def create(self, session_id: str) -> Log:
        """A new, empty log, held by us. Nothing is in it before the first entry. Raises SessionBusy."""

    def open(self, session_id: str, *, steal: bool = False) -> Log:
        """A log that is there already, held by us from now on. Raises UnknownSession, SessionBusy.

        `steal`: also from somebody who holds it, who then cannot write to it any more.
        """

    def read(self, session_id: str, after: int = -1) -> Iterator[Entry]:
        """The entries with a higher number, whoever writes. Raises UnknownSession, SessionError, DamagedSession."""

    def newest(self) -> str | None:
        """The id of the session that was written last in this project."""

    def info(self, session_id: str) -> Info | None:
        """What a list says of a session; None if it is not there."""

    def list(self, project: str | None = None, limit: int | None = None, offset: int = 0) -> builtins.list[Info]:
        """The sessions of a project (a folder), or of all; those written last come first."""

    def rename(self, session_id: str, title: str) -> None:
        """Give it a title, also while somebody holds it. Raises UnknownSession, SessionError."""

    def tag(self, session_id: str, tag: str | None) -> None:
        """Give it a tag, or take it away, also while somebody holds it. Raises UnknownSession, SessionError."""

    def delete(self, session_id: str) -> None:
        """Remove all there is of it. Raises UnknownSession, SessionBusy, SessionError."""

    def repair(self, session_id: str) -> RepairReport | None:
        """Cut it before its first damage, and put the rest aside; None if it is whole.

        Raises UnknownSession, SessionBusy, SessionError.
        """

    def agent_log(self, session_id: str, agent_id: str, meta: Json | None) -> Log:
        """A new log for a subagent of a session that the caller holds; without a `meta`, the one it has.

        Raises SessionError."""

    def agents(self, session_id: str) -> builtins.list[AgentInfo]:
        """The subagents of a session whose transcripts are kept, in no special order."""

    def read_agent(self, session_id: str, agent_id: str) -> Iterator[Entry]:
        """What a subagent said; nothing if there is none. Raises SessionError, DamagedSession."""

    def search(self, text: str, limit: int = 20) -> builtins.list[SearchHit]:
        """What was said with all these words in it, in whatever case; the latest first."""

    def path(self, session_id: str) -> str:
        """Where hosts and hooks may find the transcript; "" if nowhere."""


@runtime_checkable
class RankedSearch(Protocol):
    """A store with an index that knows what fits best."""

    def ranked(self, text: str, limit: int, session_id: str | None = None) -> builtins.list[SearchHit]:
        """What was said with some of these words in it, the best first; of one session, or of all.

        Raises SessionError.
        """


def later_time(at: str, last: str) -> str:
    """A time as lines spell it, or the first millisecond after the last one if that is not later."""
    if at > last:
        return at
    from datetime import datetime, timedelta

    try:
        after = datetime.fromisoformat(last) + timedelta(milliseconds=1)
        return after.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return at


def check_id(session_id: str) -> str:
    """An id that may become a file name. Raises SessionError."""
    if not ID_PATTERN.fullmatch(session_id):
        raise SessionError(f"{session_id!r} cannot be the id of a session")
    return session_id


def copy_entries(entries: Iterable[Entry], session_id: str) -> Iterator[Entry]:
    """The entries of a session as those of another. What was granted to the one stays granted to it alone."""
    for entry in entries:
        is_told = entry.kind in ANNOUNCED_KINDS and "session_id" in entry.message
        yield replace(entry, message={**entry.message, "session_id": session_id}) if is_told else entry
