"""The transcripts of the engine, beside the log of a session: what the log has missed, and copies of sessions.

The engine writes its transcript itself, before it sends a message: to files that the command line and other SDKs read,
or, in a cluster, to records of the log that are committed before the line is. So when a process is killed, the
transcript may have messages that no client has seen and that the log has no line for. They are added when the session
is loaded again. Nothing in the log could replace this: only the engine knows what it has written.

A fork copies both: the conversation in the store, and the lines, which become a log of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path

import msgspec

from parley.compose.launch_context import LaunchContext
from parley.compose.stores import SessionStores
from parley.errors import SessionError, UnknownSession
from parley.gateway.engines import STREAM, EngineStart
from parley.gateway.refusal import Refusal
from parley.gateway.security.quotas import read_use
from parley.gateway.session_log.records import CopiedRecord, CreatedRecord, LineRecord
from parley.gateway.session_log.session_log import SessionLog
from parley.protocol.base import Json, Struct
from parley.protocol.options import parse
from parley.protocol.peek import Head, peek
from parley.sdk.attach import encode_entry
from parley.stores.base import Entry, Store, copy_entries
from parley.stores.export import import_session
from parley.stores.request_usage import RequestUsage, list_requests
from parley.stores.session_open import entries_about_answers, entries_before_cut
from parley.workspace import private_files

STAYS = frozenset({"question", "answered", "deferred", "elicitation", "elicited", "schedule", "worktree"})
"""The entries about what the process of a session waits for or owns. They stay with the session."""
OF_THE_MOMENT = frozenset({"control_request", "control_cancel_request", "gateway"})
"""Types of lines that say what the session waited for. A reader of the copy would take them for open questions."""


def open_stores(
    argv: Sequence[str], environment: Mapping[str, str], cwd: str, given: Store | None = None
) -> SessionStores:
    """The stores that an engine with these options uses. Raises UsageError."""
    options = parse([*STREAM, *argv]).options
    return SessionStores(LaunchContext(options, dict(environment), cwd), given)


def open_transcript(start: EngineStart, session_id: str) -> Iterator[Entry] | None:
    """The entries of a session; None if it has no transcript yet. Raises UsageError or SessionError."""
    store = start.store or open_stores(start.argv, start.environment, start.cwd).store(session_id)
    return store.read(session_id) if store.exists(session_id) else None


def read_requests(stores: SessionStores, session_id: str) -> list[RequestUsage]:
    """The requests of a session, oldest first. Raises UsageError or SessionError."""
    store = stores.store(session_id)
    return [*list_requests(store.read(session_id))] if store.exists(session_id) else []


def find_missing(entries: Iterator[Entry], log: SessionLog) -> Iterator[tuple[bytes, float]]:
    """The messages of the transcript that are not in the log, with their times.

    The process died before they were sent, or another program has stored them.
    """
    known = logged_uuids(log)
    for entry in entries:
        if entry.message.get("uuid") not in known and (line := encode_entry(entry)) is not None:
            yield line, read_time(entry.at)


def read_time(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def logged_uuids(log: SessionLog, after: int = 0) -> set[str]:
    """The ids of the messages in a log after a line."""
    found: set[str] = set()
    number = after
    while lines := log.read(number):
        number = lines[-1][0]
        for _, line in lines:
            with suppress(msgspec.DecodeError):  # damaged by a power failure
                found.add(peek(line).uuid or "")
    return found


class CopySource(Struct, frozen=True):
    """The session to copy."""

    stores: SessionStores
    log: SessionLog
    engine_id: str
    """Its id in the store."""
    last: int
    """The number of its last line when the copy began."""


def copy_session(source: CopySource, new_id: str, path: Path, created: CreatedRecord, uuid: str | None) -> None:
    """Copy a session up to a message and including it; None for all of it. Raises Refusal or SessionError.

    The log of the copy is at its path when it is complete. A message is stored before it is sent, so the entries have
    at least what the lines up to `source.last` show.
    """
    store = source.stores.store(source.engine_id)
    entries = cut(list(store.read(source.engine_id)), uuid) if store.exists(source.engine_id) else []
    if not entries and (uuid is not None or source.last):
        raise Refusal("unknown_message", "the session has no stored conversation to fork")
    if entries:
        kept = [entry for entry in entries if entry.kind not in STAYS]
        numbered = (msgspec.structs.replace(entry, seq=seq) for seq, entry in enumerate(kept))
        import_session(store, new_id, copy_entries(numbered, new_id))
        source.stores.inherit(new_id, source.engine_id)
    unfinished = path.with_suffix(".copy")
    try:
        with closing(SessionLog(unfinished)) as log:
            log.record(created)
            for line in copied_lines(source, new_id, uuid):
                log.add_line(line)
            for line, _ in find_missing(iter(store.read(new_id) if entries else ()), log):
                log.add_line(line)
            paid = read_use(last_result(entries))
            log.record(
                CopiedRecord(source=source.log.session_id, lines=log.last, total_tokens=paid.tokens, total_usd=paid.usd)
            )
        private_files.rename(unfinished, path.name)
    except BaseException:
        discard_copy(source.stores, new_id, unfinished)
        raise


def discard_copy(stores: SessionStores, new_id: str, path: Path) -> None:
    """Remove a copy before any client has seen it."""
    path.unlink(missing_ok=True)
    with suppress(UnknownSession):
        stores.store(new_id).delete(new_id)


def cut(entries: list[Entry], uuid: str | None) -> list[Entry]:
    """The entries up to a message. Raises Refusal."""
    if uuid is None:
        return entries
    try:
        kept = entries_before_cut(entries, uuid, None)
    except SessionError:
        raise Refusal("unknown_message", f"the conversation has no message {uuid!r:.80}") from None
    return [*kept, *entries_about_answers(kept, entries[len(kept) :])]


def last_result(entries: list[Entry]) -> Json:
    found: Json = {}
    for entry in entries:
        if entry.kind in ("result", "conversation_reset"):
            found = entry.message if entry.kind == "result" else {}
    return found


def copied_lines(source: CopySource, new_id: str, uuid: str | None) -> Iterator[bytes]:
    """The lines up to a message, with the id of the copy; empty if the message was never sent."""
    records = source.log.all_records()
    lines = [record.data for record in records if isinstance(record, LineRecord) and record.number <= source.last]
    if uuid is not None:
        ends = [index for index, line in enumerate(lines, 1) if peek(line).uuid == uuid]
        lines = lines[: ends[0]] if ends else []
    # A quote within a text is escaped, so this is found only where it is a field.
    field = re.compile(rf'"session_id":"(?:{re.escape(source.log.session_id)}|{re.escape(source.engine_id)})"'.encode())
    own = f'"session_id":"{new_id}"'.encode()
    return (field.sub(own, line) for line in lines if not is_of_the_moment(peek(line)))


def is_of_the_moment(head: Head) -> bool:
    return head.type in OF_THE_MOMENT or (head.type, head.subtype) == ("system", "session_state_changed")
