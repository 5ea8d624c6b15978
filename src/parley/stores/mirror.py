"""A log that also sends its lines to the client, for clients that keep sessions in a store of their own.

    target = MirrorTarget(path=..., session_id=..., context=..., max_bytes=...)
    log = MirroredLog(log, send, target)

Each entry is sent right after it is appended, before any message that depends on it: a client that has received a
result has the session up to there. The lines have the layout of Claude Code, whatever the store. They are marked as
copies, so readers expect no checksum on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from parley.protocol.base import Json, Message, Struct, encode_json
from parley.protocol.messages.notices import TranscriptMirror
from parley.stores.base import Entry, Log, WrappedLog
from parley.stores.files.entry_codec import MIRRORED, EntryContext, TranscriptEncoder


class MirrorTarget(Struct, frozen=True, kw_only=True):
    """Which transcript of the client's store the lines belong to."""

    path: str
    """The file path that the messages name. It need not exist."""
    session_id: str
    context: EntryContext
    max_bytes: int
    """Longer messages are not sent, because clients close the connection on them."""


class MirroredLog(WrappedLog):
    def __init__(
        self,
        log: Log,
        send: Callable[[Message], None],
        target: MirrorTarget,
        *,
        is_copy: bool = False,
        head: Json | None = None,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`is_copy`: the entries in the log come from another session and were not sent yet.

        `head` is sent before the first entry: the metadata of a subagent, which is not in its log.
        """
        super().__init__(log)
        self._send_message = send
        self._path = target.path
        self._max_bytes = target.max_bytes
        self._encoder = TranscriptEncoder(target.session_id, target.context)
        self._warn = warn
        self._has_unsent = is_copy
        self._head = head

    def append(self, *entries: Entry) -> None:
        if self._has_unsent:
            self._has_unsent = False
            for before in self.log.entries():
                self._send(before)
        self.log.append(*entries)
        if self._head is not None:
            self._send_message(TranscriptMirror(filePath=self._path, entries=[self._head]))
            self._head = None
        for entry in entries:
            self._send(entry)

    def entries(self, after: int = -1) -> Iterator[Entry]:
        for entry in self.log.entries(after):
            if not self._has_unsent:
                self._encoder.commit(self._encoder.encode([entry]))
            yield entry

    def _send(self, entry: Entry) -> None:
        encoded = self._encoder.encode([entry])
        self._encoder.commit(encoded)
        for line in encoded.lines:
            frame = TranscriptMirror(filePath=self._path, entries=[{**line, MIRRORED: True}])
            size = len(encode_json(frame))
            if size > self._max_bytes:
                self._warn(
                    f"entry {entry.seq} of the session is not mirrored: "
                    f"the message has {size} bytes; the client accepts at most {self._max_bytes}"
                )
            else:
                self._send_message(frame)
