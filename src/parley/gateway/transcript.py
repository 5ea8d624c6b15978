"""What the transcript of a session says that its log does not.

The engine writes its transcript itself, before it sends a message: to files that the command line and other SDKs read,
or, in a cluster, to records of the log that are committed before the line is. So when a process is killed, the
transcript may have messages that no client has seen and that the log has no line for. They are added when the session
is loaded again. Nothing in the log could replace this: only the engine knows what it has written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec

from parley.compose.launch_context import LaunchContext
from parley.compose.stores import SessionStores
from parley.gateway.engines import STREAM, EngineStart
from parley.gateway.session_log.session_log import SessionLog, read_uuid
from parley.protocol.base import convert, encode_json
from parley.protocol.messages.conversation import Assistant, User
from parley.protocol.messages.result import Result
from parley.protocol.options import parse
from parley.stores.base import Entry, Store

KINDS = {"user": User, "assistant": Assistant, "result": Result}


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


def missing_lines(entries: Iterator[Entry], log: SessionLog) -> Iterator[bytes]:
    """The messages of the transcript that are not in the log: the process died before they were sent."""
    known = logged_uuids(log)
    for entry in entries:
        cls = KINDS.get(entry.kind)
        if cls is not None and entry.message.get("uuid") not in known:
            try:
                yield encode_json(convert(entry.message, cls))
            except msgspec.ValidationError:
                yield encode_json(entry.message)


def logged_uuids(log: SessionLog) -> set[str]:
    """The ids of the messages in a log."""
    found: set[str] = set()
    number = 0
    while lines := log.read(number):
        number = lines[-1][0]
        for _, line in lines:
            with suppress(msgspec.DecodeError):  # damaged by a power failure
                found.add(read_uuid(line))
    return found
