"""Copy a session: its conversation in the store, and its lines, which become a log of their own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from parley.compose.stores import SessionStores
from parley.errors import SessionError, UnknownSession
from parley.gateway.refusal import Refusal
from parley.gateway.security.quotas import read_use
from parley.gateway.session_log.records import CopiedRecord, CreatedRecord, LineRecord
from parley.gateway.session_log.session_log import SessionLog, read_uuid
from parley.gateway.transcript import missing_lines
from parley.protocol.base import Json, Struct
from parley.stores.base import Entry, copy_entries
from parley.stores.export import import_session
from parley.stores.session_open import entries_about_answers, entries_before_cut

STAYS = frozenset({"question", "answered", "deferred", "elicitation", "elicited", "schedule", "worktree"})
"""The entries about what the process of a session waits for or owns. They stay with the session."""
OF_THE_MOMENT = (
    b'{"type":"control_request"',
    b'{"type":"control_cancel_request"',
    b'{"type":"gateway"',
    b'{"type":"system","subtype":"session_state_changed"',
)
"""Lines that say what the session waited for. A reader of the copy would take them for questions that are open."""


class Source(Struct, frozen=True):
    """The session to copy."""

    stores: SessionStores
    log: SessionLog
    engine_id: str
    """Its id in the store."""
    last: int
    """The number of its last line when the copy began."""


def copy_session(source: Source, new_id: str, path: Path, created: CreatedRecord, uuid: str | None) -> None:
    """Copy a session up to a message and including it; None for all of it. Raises Refusal or SessionError.

    The log of the copy is at its path when it is complete. A message is stored before it is sent, so the entries have
    at least what the lines up to `source.last` show.
    """
    store = source.stores.store(source.engine_id)
    entries = cut(list(store.read(source.engine_id)), uuid) if store.exists(source.engine_id) else []
    if not entries and (uuid is not None or source.last):
        raise Refusal("unknown_message", "the session has no stored conversation to fork")
    if entries:
        kept = (entry for entry in entries if entry.kind not in STAYS)
        import_session(store, new_id, copy_entries(renumber(kept), new_id))
        source.stores.inherit(new_id, source.engine_id)
    unfinished = path.with_suffix(".copy")
    try:
        with closing(SessionLog(unfinished)) as log:
            log.record(created)
            for line in copied_lines(source, new_id, uuid):
                log.add_line(line)
            for line in missing_lines(iter(store.read(new_id) if entries else ()), log):
                log.add_line(line)
            paid = read_use(last_result(entries))
            log.record(
                CopiedRecord(source=source.log.session_id, lines=log.last, total_tokens=paid.tokens, total_usd=paid.usd)
            )
        os.replace(unfinished, path)
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


def renumber(entries: Iterator[Entry]) -> Iterator[Entry]:
    return (msgspec.structs.replace(entry, seq=seq) for seq, entry in enumerate(entries))


def copied_lines(source: Source, new_id: str, uuid: str | None) -> Iterator[bytes]:
    """The lines up to a message, with the id of the copy; empty if the message was never sent."""
    records = source.log.all_records()
    lines = [record.data for record in records if isinstance(record, LineRecord) and record.number <= source.last]
    if uuid is not None:
        ends = [index for index, line in enumerate(lines, 1) if read_uuid(line) == uuid]
        lines = lines[: ends[0]] if ends else []
    # A quote within a text is escaped, so this is found only where it is a field.
    field = re.compile(rf'"session_id":"(?:{re.escape(source.log.session_id)}|{re.escape(source.engine_id)})"'.encode())
    own = f'"session_id":"{new_id}"'.encode()
    return (field.sub(own, line) for line in lines if not line.startswith(OF_THE_MOMENT))
