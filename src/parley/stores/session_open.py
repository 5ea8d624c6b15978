"""Which session an engine runs, and its log.

    opened = open_session(Wanted(resume="…", fork=True), store, new_id)
    opened.session_id, opened.log

A session keeps its id for life; only a fork has another. Whoever forks, or keeps nothing, only
reads the old session, which somebody else may hold meanwhile. An id that nobody knows is an
error, never a new session.

A session may be taken up at an earlier point. What is behind it is not deleted: a `cut` in the
log says where the conversation goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from parley.errors import SessionError, UsageError
from parley.protocol.base import Json, Struct
from parley.stores.base import USAGE, Entry, Log, Store, copied, later

REJECTED = "Resume rejected by --resume-drops-turn:"  # clients look for this very beginning


class Wanted(Struct, frozen=True, kw_only=True):
    """What was asked for."""

    session_id: str | None = None
    resume: str | None = None
    newest: bool = False
    """Whether the session that was written last goes on."""
    fork: bool = False
    steal: bool = False
    keep: bool = True
    """Whether anything is written."""
    at: str | None = None
    """The last line that counts."""
    drops: str | None = None
    """The prompt whose turn is all that may be behind it."""

    @property
    def begins_as(self) -> str:
        """How the session comes about."""
        if not (self.resume or self.newest):
            return "startup"
        return "fork" if self.fork else "resume"


class Opened(Struct, frozen=True, kw_only=True):
    session_id: str
    log: Log
    copied: str | None = None
    """The session that this one is a copy of."""


def open_session(wanted: Wanted, store: Store, new_id: Callable[[], str]) -> Opened:
    """Raises UsageError, SessionError, and with it UnknownSession, SessionBusy and DamagedSession."""
    check(wanted)
    old = wanted.resume or (store.newest() if wanted.newest else None)
    if wanted.newest and old is None:
        raise SessionError("No conversation found to continue")
    if wanted.session_id is not None and wanted.keep and store.exists(wanted.session_id):
        raise UsageError(f"Session ID {wanted.session_id} is already in use.")
    if old is None:
        session_id = wanted.session_id or new_id()
        return Opened(session_id=session_id, log=place(wanted, store).create(session_id))
    if wanted.fork:
        session_id = wanted.session_id or new_id()
        return Opened(session_id=session_id, log=copy(wanted, store, old, session_id), copied=old)
    if not wanted.keep:
        return Opened(session_id=old, log=copy(wanted, store, old, old))
    return Opened(session_id=old, log=taken_up(wanted, store.open(old, steal=wanted.steal)))


def check(wanted: Wanted) -> None:
    """Raises UsageError if the options contradict each other."""
    if wanted.session_id is not None and not is_uuid(wanted.session_id):
        raise UsageError("Invalid session ID. Must be a valid UUID.")
    if wanted.resume is not None and not wanted.resume.strip():
        raise UsageError("--resume needs the id or the title of a session")
    goes_on = bool(wanted.resume or wanted.newest)
    if wanted.session_id is not None and goes_on and not wanted.fork:
        raise UsageError("--session-id goes with --resume or --continue only together with --fork-session")
    if wanted.at is not None and not goes_on:
        raise UsageError("--resume-session-at goes only with --resume or --continue")
    if wanted.drops is not None and wanted.at is None:
        raise UsageError("--resume-drops-turn goes only with --resume-session-at")


def place(wanted: Wanted, store: Store) -> Store:
    """Where the session is written."""
    if wanted.keep:
        return store
    from parley.stores.memory import Memory

    return Memory()


def copy(wanted: Wanted, store: Store, old: str, session_id: str) -> Log:
    """A new log with what counts of an old one, which is only read."""
    entries = list(store.read(old))  # all of it, as a copy of the good half of a damaged session is worse than none
    if wanted.at is not None:
        kept = before_cut(entries, wanted.at, wanted.drops)
        entries = [*kept, *about_answers(kept, entries[len(kept) :])]
    log = place(wanted, store).create(session_id)
    for seq, entry in enumerate(copied(entries, session_id)):
        log.append(msgspec.structs.replace(entry, seq=seq))
    return log


def taken_up(wanted: Wanted, log: Log) -> Log:
    """The log of the session itself; it goes on at an earlier point if that is wanted."""
    if wanted.at is None:
        return log
    try:
        entries = list(log.entries())
        if before_cut(entries, wanted.at, wanted.drops) != entries:
            last = entries[-1]
            log.append(Entry(seq=last.seq + 1, kind="cut", at=later(last.at, last.at), message={"after": wanted.at}))
    except BaseException:
        log.close()
        raise
    return log


def before_cut(entries: list[Entry], at: str, drops: str | None) -> list[Entry]:
    """The entries up to the one that counts last. Raises SessionError if the conversation cannot be cut there."""
    places = [number for number, entry in talk(entries) if entry.message.get("uuid") == at]
    if not places:
        raise SessionError(f"No message found with message.uuid of: {at}")
    if drops is not None:
        check_dropped([entry for number, entry in talk(entries) if number > places[0]], drops)
    return entries[: places[0] + 1]


def about_answers(kept: list[Entry], behind: list[Entry]) -> Iterator[Entry]:
    """What was noted about answers after the cut: their figures, and what was decided on their calls.

    Calls whose results are cut off have run, and nobody may say that they did not.
    """
    answers = [entry.message["message"] for entry in kept if entry.kind == "assistant"]
    ids = {answer.get("id") for answer in answers}
    contents = [answer["content"] for answer in answers if isinstance(answer["content"], list)]
    called = {block.get("id") for content in contents for block in content}
    for entry in behind:
        is_figure = entry.kind == USAGE and entry.message.get("id") in ids
        if is_figure or (entry.kind == "permission" and entry.message.get("tool_use_id") in called):
            yield entry


def talk(entries: list[Entry]) -> Iterator[tuple[int, Entry]]:
    """The lines of the conversation as it stands, with their places: without what was cut off before."""
    found: list[tuple[int, Entry]] = []
    for number, entry in enumerate(entries):
        if entry.kind in ("user", "assistant"):
            found.append((number, entry))
        elif entry.kind == "cut":
            uuids = [kept.message.get("uuid") for _, kept in found]
            after = entry.message.get("after")
            found = found[: uuids.index(after) + 1] if after in uuids else found
    return iter(found)


def check_dropped(dropped: list[Entry], prompt: str) -> None:
    """Raises SessionError unless a range is one turn and nothing else, or nothing at all."""
    if not dropped:
        return
    first, *rest = dropped
    if first.message.get("uuid") != prompt:
        raise SessionError(f"{REJECTED} {told(first)} would be lost, which is no part of the turn of {prompt!r}")
    others = [entry for entry in rest if is_prompt(entry.message)]
    if others:
        raise SessionError(f"{REJECTED} {told(others[0])} came within the turn of {prompt!r} and would be lost")
    merged = [uuid for uuid in first.message.get("user_message_uuids") or () if uuid != prompt]
    if merged:
        raise SessionError(f"{REJECTED} the prompt {merged[0]} is answered in the turn of {prompt!r} and would be lost")


def told(entry: Entry) -> str:
    return f"the {entry.kind} message {entry.message.get('uuid')}"


def is_prompt(message: Json) -> bool:
    """Whether a line is what somebody said, and no result of a call nor a note of the engine."""
    if message.get("type") != "user" or message.get("isSynthetic"):
        return False
    content = message["message"]["content"]
    return isinstance(content, str) or not any(block.get("type") == "tool_result" for block in content)


def is_uuid(text: str) -> bool:
    return re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text) is not None
