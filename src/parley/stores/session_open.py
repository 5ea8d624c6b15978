"""Create, resume or fork the session that the options name.

    opened = open_session(SessionRequest(resume="…", fork=True), store, new_id)
    opened.session_id, opened.log

A session keeps its id; only a fork gets a new one. A fork, and a resume without persistence, only read the old
session, so another process may hold it. An unknown id is an error and never creates a session.

A session can be resumed at an earlier message. The later entries are not deleted: a `cut` entry in the log says where
the conversation continues.

See also: `session_find.py` for sessions that are named by a title or the start of an id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from parley.errors import SessionError, UsageError
from parley.protocol.base import Json, Struct
from parley.stores.base import USAGE, Entry, Log, Store, copy_entries, later_time

REJECTED = "Resume rejected by --resume-drops-turn:"  # clients match this prefix


class WantedSession(Struct, frozen=True, kw_only=True):
    """The session options of a launch."""

    session_id: str | None = None
    resume: str | None = None
    newest: bool = False
    """Resume the most recently written session."""
    fork: bool = False
    steal: bool = False
    keep: bool = True
    """Whether the session is persisted."""
    at: str | None = None
    """The uuid of the message to resume at; later messages are dropped."""
    drops: str | None = None
    """The uuid of the prompt whose turn is the only one that may be dropped."""

    @property
    def begins_as(self) -> str:
        """The `source` that SessionStart hooks receive."""
        if not (self.resume or self.newest):
            return "startup"
        return "fork" if self.fork else "resume"


class OpenedSession(Struct, frozen=True, kw_only=True):
    session_id: str
    log: Log
    copied: str | None = None
    """The session that this one was forked from."""


def open_session(request: WantedSession, store: Store, new_id: Callable[[], str]) -> OpenedSession:
    """Raises UsageError and SessionError (UnknownSession, SessionBusy, DamagedSession)."""
    if request.resume is not None and not request.resume.strip():
        raise UsageError("--resume needs a session id or title")
    check_options(request)
    old = request.resume or (store.newest() if request.newest else None)
    if request.newest and old is None:
        raise SessionError("No conversation found to continue")
    if request.session_id is not None and request.keep and store.exists(request.session_id):
        used = request.session_id
        raise UsageError(f"Session ID {used} is already in use. Use --resume {used} to continue it.")
    if old is None:
        session_id = request.session_id or new_id()
        return OpenedSession(session_id=session_id, log=target_store(request, store).create(session_id))
    if request.fork:
        session_id = request.session_id or new_id()
        return OpenedSession(session_id=session_id, log=copy_session(request, store, old, session_id), copied=old)
    if not request.keep:
        return OpenedSession(session_id=old, log=copy_session(request, store, old, old))
    return OpenedSession(session_id=old, log=resume_session(request, store.open(old, steal=request.steal)))


def check_options(request: WantedSession) -> None:
    """Raises UsageError if the options contradict each other."""
    if request.session_id is not None and not is_uuid(request.session_id):
        raise UsageError(f"Invalid session ID. Must be a valid UUID, not {request.session_id!r:.200}.")
    resumes = bool(request.resume or request.newest)
    if request.session_id is not None and resumes and not request.fork:
        raise UsageError("--session-id can be combined with --resume or --continue only if --fork-session is given")
    if request.at is not None and not resumes:
        raise UsageError("--resume-session-at requires --resume or --continue")
    if request.drops is not None and request.at is None:
        raise UsageError("--resume-drops-turn requires --resume-session-at")


def target_store(request: WantedSession, store: Store) -> Store:
    """The store that the new log is created in."""
    if request.keep:
        return store
    from parley.stores.memory import MemoryStore

    return MemoryStore()


def copy_session(request: WantedSession, store: Store, old: str, session_id: str) -> Log:
    """Create a log with the entries of an old one, up to `request.at`."""
    entries = list(store.read(old))  # read all of it first: a damaged session must not be copied in part
    if request.at is not None:
        kept = entries_before_cut(entries, request.at, request.drops)
        entries = [*kept, *entries_about_answers(kept, entries[len(kept) :])]
    log = target_store(request, store).create(session_id)
    for seq, entry in enumerate(copy_entries(entries, session_id)):
        log.append(msgspec.structs.replace(entry, seq=seq))
    return log


def resume_session(request: WantedSession, log: Log) -> Log:
    """Return the opened log, after appending a `cut` if the session resumes at an earlier message."""
    if request.at is None:
        return log
    try:
        entries = list(log.entries())
        if entries_before_cut(entries, request.at, request.drops) != entries:
            last = entries[-1]
            log.append(
                Entry(seq=last.seq + 1, kind="cut", at=later_time(last.at, last.at), message={"after": request.at})
            )
    except BaseException:
        log.close()
        raise
    return log


def entries_before_cut(entries: list[Entry], at: str, drops: str | None) -> list[Entry]:
    """The entries up to the message `at`. Raises SessionError if the conversation cannot be cut there."""
    matches = [index for index, entry in conversation_entries(entries) if entry.message.get("uuid") == at]
    if not matches:
        raise SessionError(f"No message found with message.uuid of: {at}")
    if drops is not None:
        check_dropped([entry for index, entry in conversation_entries(entries) if index > matches[0]], drops)
    return entries[: matches[0] + 1]


def entries_about_answers(kept: list[Entry], dropped: list[Entry]) -> Iterator[Entry]:
    """The dropped entries that belong to kept answers: their usage, and the permission decisions on their calls.

    Calls whose results are dropped did run, so their decisions must stay on record.
    """
    answers = [entry.message["message"] for entry in kept if entry.kind == "assistant"]
    ids = {answer.get("id") for answer in answers}
    contents = [answer["content"] for answer in answers if isinstance(answer["content"], list)]
    called = {block.get("id") for content in contents for block in content}
    for entry in dropped:
        is_usage = entry.kind == USAGE and entry.message.get("id") in ids
        if is_usage or (entry.kind == "permission" and entry.message.get("tool_use_id") in called):
            yield entry


def conversation_entries(entries: list[Entry]) -> Iterator[tuple[int, Entry]]:
    """The messages of the current conversation with their indexes, without those removed by earlier cuts."""
    found: list[tuple[int, Entry]] = []
    for index, entry in enumerate(entries):
        if entry.kind in ("user", "assistant"):
            found.append((index, entry))
        elif entry.kind == "cut":
            uuids = [kept.message.get("uuid") for _, kept in found]
            after = entry.message.get("after")
            found = found[: uuids.index(after) + 1] if after in uuids else found
    return iter(found)


def check_dropped(dropped: list[Entry], prompt: str) -> None:
    """Raises SessionError unless the dropped messages are exactly the turn of `prompt`, or none."""
    if not dropped:
        return
    first, *rest = dropped
    if first.message.get("uuid") != prompt:
        raise SessionError(f"{REJECTED} {describe(first)} would be dropped, but is not part of the turn of {prompt!r}")
    others = [entry for entry in rest if is_prompt(entry.message)]
    if others:
        raise SessionError(
            f"{REJECTED} {describe(others[0])} arrived during the turn of {prompt!r} and would be dropped"
        )
    merged = [uuid for uuid in first.message.get("user_message_uuids") or () if uuid != prompt]
    if merged:
        raise SessionError(
            f"{REJECTED} the prompt {merged[0]} was answered together with {prompt!r} and would be dropped too"
        )


def describe(entry: Entry) -> str:
    return f"the {entry.kind} message {entry.message.get('uuid')}"


def is_prompt(message: Json) -> bool:
    """Whether a message is a prompt, and not a tool result or a message of the engine."""
    if message.get("type") != "user" or message.get("isSynthetic"):
        return False
    content = message["message"]["content"]
    return isinstance(content, str) or not any(block.get("type") == "tool_result" for block in content)


def is_uuid(text: str) -> bool:
    return re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text) is not None
