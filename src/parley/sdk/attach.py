"""Follow a session that another process runs.

    async for line in attach(session_id, after=41):
        line.seq, line.message

Every line has a sequence number. Pass the last one you have seen as `after` to continue from there: no line is
repeated and none is missed. Attaching only reads; it does not lock the session.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import msgspec

from parley.protocol.base import Message as WireMessage
from parley.protocol.base import convert, decode, encode_json
from parley.protocol.messages.conversation import Assistant, User
from parley.protocol.messages.result import Result
from parley.sdk.runtime.message_parser import parse_message
from parley.sdk.sessions import SessionLookup
from parley.sdk.types.messages import Message
from parley.stores.base import Entry

LINES: dict[str, type[WireMessage]] = {"user": User, "assistant": Assistant, "result": Result}
POLL_SECONDS = 0.05
IDLE_RATIO = 5
"""Sleep at least this many times as long as a poll took, so that long sessions do not keep a core busy."""


@dataclass
class Attached:
    """One line of a session."""

    seq: int
    message: Message


class Attachment(AsyncIterator[Attached]):
    """The lines of a session, read from its store."""

    def __init__(self, lookup: SessionLookup, session_id: str, after: int, follow: bool) -> None:
        self._store = lookup.store(session_id)
        self._session_id = session_id
        self.after = after
        """The sequence number of the last line returned: the cursor for the next call."""
        self._read = after
        self._follow = follow
        self._held: deque[Attached] = deque()
        self._is_finished = False

    def __aiter__(self) -> Attachment:
        return self

    async def __anext__(self) -> Attached:
        """Raises UnknownSession, SessionError. The iteration ends when no process holds the session."""
        from anyio import sleep, to_thread

        while not self._held:
            if self._is_finished:
                raise StopAsyncIteration
            started = time.monotonic()
            await to_thread.run_sync(self._poll)
            if not self._held and not self._is_finished:
                await sleep(max(POLL_SECONDS, IDLE_RATIO * (time.monotonic() - started)))
        found = self._held.popleft()
        self.after = found.seq
        return found

    def _poll(self) -> None:
        # Check the lease first: a line written between the two calls is read by the next poll.
        is_held = self._store.is_held(self._session_id)
        for entry in self._store.read(self._session_id, self._read):
            self._read = entry.seq
            message = decode_entry(entry)
            if message is not None:
                self._held.append(Attached(entry.seq, message))
        self._is_finished = not (self._follow and is_held)


def decode_entry(entry: Entry) -> Message | None:
    """Return the message of an entry, or None for a kind of entry that is never sent to clients."""
    line = encode_entry(entry)
    return None if line is None else parse_message(decode(line))


def encode_entry(entry: Entry) -> bytes | None:
    """Return the line that clients received, or None."""
    cls = LINES.get(entry.kind)
    if cls is None:
        return None
    try:
        # Use the field order of the message class; stores may order fields differently.
        return encode_json(convert(entry.message, cls))
    except msgspec.ValidationError:
        return encode_json(entry.message)


def attach(
    session_id: str,
    after: int = -1,
    *,
    follow: bool = True,
    directory: str | None = None,
    store: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Attachment:
    """Iterate over the messages of a session after number `after`.

    With `follow`, wait for new messages while a process holds the session.
    """
    return Attachment(SessionLookup(directory, store, env), session_id, after, follow)
