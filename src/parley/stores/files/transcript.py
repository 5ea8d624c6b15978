"""One transcript file: appended to by its one holder, read by anybody.

Reading gives the longest part that is certainly whole. A torn or damaged end is left out and
complained about; a hole in the middle is an error, as going on behind it would be a lie. Whoever
writes next cuts off half a line: it was never told to anybody.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import msgspec

from parley.errors import DamagedSession, SessionBusy, SessionError
from parley.protocol.base import Json, spell
from parley.stores.base import FOREIGN, Entry
from parley.stores.checksum_chain import Hole, Seal
from parley.stores.files import title_tags
from parley.stores.files.entry_codec import BEGINNINGS, CONVERSATION, MIRRORED, Context, entry
from parley.stores.files.lease import Lease
from parley.stores.files.provenance import is_copy, is_label, was_ours
from parley.stores.files.transcript_lines import Reading, Spelled, Spelling
from parley.workspace import private_files

BELOW, AGENT_BELOW = 2, 4
"""How many folders above a transcript are ours: `projects/<project>`; `projects/<project>/<session>/subagents`."""


class Reader:
    """Reads a transcript from its beginning, and knows afterwards what the next line follows on."""

    def __init__(
        self,
        path: Path,
        session_id: str,
        complain: Callable[[str], None] = lambda text: None,
        *,
        of_agent: bool = False,
    ) -> None:
        """`of_agent`: it is the transcript of a subagent."""
        self.seal = Seal()
        self.reading = Reading()
        self.names_leaf = False
        """Whether another engine says in the file which line it continues on."""
        self.size_bytes = 0
        """How much there was to read."""
        self._path = path
        self._session_id = session_id
        self._complain = complain
        self._of_agent = of_agent
        self._below = AGENT_BELOW if of_agent else BELOW

    def entries(self, after: int = -1) -> Iterator[Entry]:
        """The entries with a higher number. Raises SessionError, DamagedSession."""
        try:
            with open(private_files.open_file(self._path, os.O_RDONLY, below=self._below), "rb") as file:
                self.size_bytes = os.fstat(file.fileno()).st_size
                ours = self._ours(file)
                file.seek(0)
                found = self._mixed(file) if ours is None else self._own(islice(file, ours))
                yield from found if after < 0 else (entry for entry in found if entry.seq > after)
        except FileNotFoundError:
            return
        except OSError as flaw:
            raise SessionError(f"the session cannot be read from {self._path}: {flaw.strerror}") from None

    def _ours(self, file: BinaryIO) -> int | None:
        """How many lines there are, if all of them are records of ours in their places; else None."""
        seal, count = Seal(), 0
        try:
            for raw in file:
                if not seal.holds(raw.rstrip(b"\n")) and not is_label(raw):
                    return None
                count += 1
        except Hole:
            return None
        self.seal = seal
        return count

    def _own(self, lines: Iterable[bytes]) -> Iterator[Entry]:
        """The entries of records of ours: each follows on the one before it, so there are no branches."""
        seq, session_id, of_agent = 0, self._session_id, self._of_agent
        for raw in lines:
            json = DECODER.decode(raw)
            found = entry(json, session_id, seq, of_agent=of_agent)
            if found is not None:
                seq = found.seq + 1
                yield from self.reading.feed(found, is_held=is_held(json))
        yield from self.reading.blocks

    def _mixed(self, file: BinaryIO) -> Iterator[Entry]:
        """The entries of a file that others have written to, or that is damaged. Raises DamagedSession."""
        seq, lost = 0, 0
        dropped = self._abandoned(file)
        for number, raw in enumerate(file, 1):
            line = self._read(raw, number)
            if line is None:
                lost = lost or number
                continue
            json, is_ours = line
            found = entry(json, self._session_id, seq, of_agent=self._of_agent)
            if found is not None and not is_ours:
                found = self._checked(found, number)
            uuid = json.get("uuid") if found is None else found.message.get("uuid")
            if found is not None:
                seq = found.seq + 1
            if dropped and uuid in dropped:
                continue
            if found is not None:
                yield from self.reading.feed(found, is_held=is_held(json))
            elif isinstance(uuid, str) and self._is_chained(json):
                yield from self.reading.pass_by(uuid)
            self.names_leaf = self.names_leaf or json.get("type") == LEAF
        yield from self.reading.blocks
        if lost:
            self._complain(f"line {lost} of {self._path} is torn or damaged, and is left out")

    def _abandoned(self, file: BinaryIO) -> frozenset[str]:
        """The lines on branches that do not count. The file is read from its beginning, and stands there again."""
        from parley.stores.files import branches

        found: frozenset[str] = frozenset()
        if not branches.is_straight(file):
            file.seek(0)
            found = branches.abandoned(whole(file, self._session_id))
        file.seek(0)
        return found

    def _read(self, raw: bytes, number: int) -> tuple[Json, bool] | None:
        """The object of a line, and whether it is a record in its place; None if it is damaged.

        Raises DamagedSession.
        """
        body = raw.rstrip(b"\n")
        try:
            is_ours = self.seal.holds(body)
        except Hole:
            raise DamagedSession(self._session_id, f"line {number - 1} of {self._path}") from None
        if not is_ours and not body.strip():
            return {}, False
        try:
            json = DECODER.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if not isinstance(json, dict):
            return {}, False
        if is_ours:
            return json, True
        if was_ours(json, body) and not (raw.endswith(b"\n") and is_copy(json, body, self._session_id, self.seal)):
            return None
        if json.get("type") == "assistant" and b'"tool_use"' in body and MIRRORED not in json:
            json[FOREIGN] = True  # what we noted about its calls is missing, or never was
        return json, False

    def _is_chained(self, json: Json) -> bool:
        """Whether a line that is no entry stands in the chain of the conversation: an attachment, a notice."""
        return "parentUuid" in json and bool(json.get("isSidechain")) is self._of_agent

    def _checked(self, found: Entry, number: int) -> Entry | None:
        """The entry of somebody else's line, unless it would be in the way for ever."""
        from parley.stores.entry_validation import oddity

        if (odd := oddity(found)) is None:
            return found
        self._complain(f"line {number} of {self._path} is left out: {odd}")
        return None


LEAF = "last-prompt"
"""The type of the line by which the original names the line that it continues on."""
DECODER = msgspec.json.Decoder()


def is_held(json: Json) -> bool:
    """Whether a line of ours holds a block whose own line is to come."""
    return json["type"] == "parley" and json.get("kind") in CONVERSATION


def whole(lines: Iterable[bytes], session_id: str) -> Iterator[bytes]:
    """The lines that are not damaged, up to the first hole."""
    reader = Reader(Path(), session_id)
    for raw in lines:
        try:
            if reader._read(raw, 0) is not None:
                yield raw
        except DamagedSession:
            return


class Transcript:
    """The log of a session as a file of this layout."""

    def __init__(
        self,
        path: Path,
        session_id: str,
        context: Context,
        lease: Lease,
        complain: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._path = path
        self._session_id = session_id
        self._context = context
        self._lease: Lease | None = lease
        self._complain = complain
        self._file: int | None = None
        self._read: Reader | None = None
        """Where the file ends, once it has been read."""
        self._end = 0
        """How far we know the file."""
        self._torn = False
        """Whether the file ends in the middle of a line."""
        self._labels = title_tags.Labels()
        self._spelling = Spelling(session_id, context)
        self._seal = Seal()
        self._names_leaf = self._leaf_due = False
        """Whether the original would continue on another line than ours."""

    def append(self, entry: Entry) -> None:
        try:
            file = self._opened()
            fcntl.flock(file, fcntl.LOCK_EX)  # a thief waits here for a write that is under way
            try:
                self._write(file, self._spelling.of(entry))
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)
        except OSError as flaw:
            raise SessionError(f"the session cannot be written to {self._path}: {flaw.strerror}") from None

    def _write(self, file: int, spelled: Spelled) -> None:
        """Raises OSError, SessionError."""
        if self._lease is None or not self._lease.is_ours():
            raise SessionBusy(self._session_id, "whoever took it over")
        self._listen(file)
        seal, records, leaf_due = self._seal.copy(), b"", self._leaf_due
        for json in spelled.lines:
            record = seal.on(spell(json))
            seal.holds(record)
            records += record + b"\n"
            if self._names_leaf:
                leaf_due = leaf_due or json["type"] in BEGINNINGS or json.get("kind") == "cut"
            if leaf_due and json["type"] in CONVERSATION:
                # The original follows the chain from the line that is named.
                records += spell({"type": LEAF, "leafUuid": json["uuid"], "sessionId": self._session_id}) + b"\n"
                leaf_due = False
        self._add(file, records)
        self._seal, self._leaf_due = seal, leaf_due
        self._spelling.take(spelled)
        if due := self._labels.due(self._end):
            with suppress(OSError, SessionError):  # the entry is kept, and that is what counts
                self._add(file, due)

    def _add(self, file: int, lines: bytes) -> None:
        """Raises OSError, SessionError."""
        if self._torn:
            from parley.stores.files.repair import is_cut_off

            # Half a line, left by a crash or a full disk, must not swallow the next one.
            self._torn = not is_cut_off(file)
            self._end = os.fstat(file).st_size
        before = b"\n" if self._torn else b""
        written = before + lines
        self._torn = True
        if (count := os.write(file, written)) != len(written):
            if os.fstat(file).st_size == self._end + count:
                os.ftruncate(file, self._end)  # else it might stand there whole but for its end, and count
                self._torn = bool(before)
            raise SessionError(f"the session cannot be written to {self._path}: the disk is full")
        self._torn = False
        self._labels.hear(lines, self._end + len(written) - len(lines))
        self._end += len(written)

    def _listen(self, file: int) -> None:
        """Take in what others have written meanwhile: titles and tags, or half of one. Raises OSError, SessionError."""
        status = os.fstat(file)
        if status.st_nlink == 0 or status.st_size < self._end:
            raise self._deleted()
        if status.st_size > self._end:
            more = os.pread(file, status.st_size - self._end, self._end)
            self._labels.hear(more, self._end)
            self._torn = not more.endswith(b"\n")
            self._end += len(more)

    def sync(self) -> None:
        try:
            if self._file is not None:
                os.fdatasync(self._file)
        except OSError as flaw:
            raise SessionError(f"the session cannot be written to {self._path}: {flaw.strerror}") from None

    def entries(self, after: int = -1) -> Iterator[Entry]:
        of_agent = bool(self._context.agent_id)
        reader = Reader(self._path, self._session_id, self._complain, of_agent=of_agent)
        yield from reader.entries(after)
        self._read = reader

    def close(self) -> None:
        if self._file is not None:
            if self._spelling.blocks:
                with suppress(OSError, SessionError):  # whoever opens the session next does it
                    self._write(self._file, self._spelling.released())
            os.close(self._file)
            self._file = None
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def _opened(self) -> int:
        """The file to append to. Raises OSError, SessionError."""
        below = AGENT_BELOW if self._context.agent_id else BELOW
        if self._read is None:
            with suppress(FileNotFoundError):
                private_files.look(self._path, below=below, writes=True)
            for _ in self.entries():
                pass
        assert self._read is not None
        if self._file is None:
            self._file = self._open(self._read.size_bytes, below)
            reading = self._read.reading
            self._spelling.parent, self._spelling.blocks = reading.parent, reading.blocks
            self._seal = self._read.seal
            self._names_leaf = self._leaf_due = self._read.names_leaf
        return self._file

    def _open(self, known: int, below: int) -> int:
        """The file, of which so much has been read. Raises OSError, SessionError."""
        flags = os.O_RDWR | os.O_APPEND | (0 if known else os.O_CREAT)
        try:
            file = private_files.open_file(self._path, flags, below=below)
        except FileNotFoundError:
            raise self._deleted() from None
        begin = max(known - title_tags.REACH, 0)
        tail = os.pread(file, known - begin, begin)
        self._labels.hear(tail, begin)
        self._end, self._torn = known, bool(tail) and not tail.endswith(b"\n")
        return file

    def _deleted(self) -> SessionError:
        return SessionError(f"the session was deleted at {self._path} while it was open")
