"""A log whose lines are told as well, for a client that keeps sessions in a store of its own.

    mirror = Mirror(log, told=send, path=..., session_id=..., context=..., most_bytes=...)

Each entry is told when it is kept, and before anything that follows from it: who has heard a result
has the session up to there. The lines are those of the original's layout, whatever the session is
kept in. They say that they are copies, so nobody looks for a checksum on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from parley.protocol.base import Json, Message, spell
from parley.protocol.messages.notices import TranscriptMirror
from parley.stores.base import Entry, Log
from parley.stores.files.entry_codec import MIRRORED, Context
from parley.stores.files.transcript_lines import Spelling


class Mirror:
    def __init__(
        self,
        log: Log,
        told: Callable[[Message], None],
        *,
        path: str,
        session_id: str,
        context: Context,
        most_bytes: int,
        is_copy: bool = False,
        head: Json | None = None,
        complain: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`is_copy`: nobody was told yet what the log holds, as it was copied from another session.

        `head` is told before the first entry: what is known of a subagent, which has no line in its log.
        """
        self._log = log
        self._told = told
        self._path = path
        self._spelling = Spelling(session_id, context)
        self._most_bytes = most_bytes
        self._complain = complain
        self._is_behind = is_copy
        self._head = head

    def append(self, entry: Entry) -> None:
        if self._is_behind:
            self._is_behind = False
            for before in self._log.entries():
                self._tell(before)
        self._log.append(entry)
        if self._head is not None:
            self._told(TranscriptMirror(filePath=self._path, entries=[self._head]))
            self._head = None
        self._tell(entry)

    def sync(self) -> None:
        self._log.sync()

    def entries(self, after: int = -1) -> Iterator[Entry]:
        for entry in self._log.entries(after):
            if not self._is_behind:
                self._spelling.take(self._spelling.of(entry))
            yield entry

    def close(self) -> None:
        self._log.close()

    def _tell(self, entry: Entry) -> None:
        spelled = self._spelling.of(entry)
        self._spelling.take(spelled)
        for line in spelled.lines:
            frame = TranscriptMirror(filePath=self._path, entries=[{**line, MIRRORED: True}])
            # Clients break off at a line that is too long, and lose more than this one.
            size = len(spell(frame))
            if size > self._most_bytes:
                self._complain(f"entry {entry.seq} of the session is not mirrored: it would be a line of {size} bytes")
            else:
                self._told(frame)
