"""Convert between entries and the lines of a transcript.

An answer is stored block by block while it streams, before each block is sent to the client. Its usage and stop reason
are known only at its end, and programs that count tokens read them from the messages. So a block of an unfinished
answer is first stored as a `parley` line: it is held. Its message line follows when the answer has ended: with the
`usage` entry, which has the final figures, or without it before the next entry.

    encoder = TranscriptEncoder(session_id, context)
    encoded = encoder.encode(entry)       # changes nothing yet, because the write may fail
    encoder.commit(encoded)               # the lines are written

`TranscriptDecoder` is the reverse. It yields each block once.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from parley.protocol.base import Json, Struct
from parley.stores.base import USAGE, Entry
from parley.stores.files.entry_codec import EntryContext, encode_entry, encode_unfinished, next_parent


class EncodedLines(Struct, frozen=True):
    """The lines to write, and the state of the encoder after that."""

    lines: list[Json]
    parent: str | None
    blocks: list[Entry]


class TranscriptEncoder:
    """Encodes the entries of one transcript, in order."""

    def __init__(self, session_id: str, context: EntryContext) -> None:
        self._session_id = session_id
        self._context = context
        self.parent: str | None = None
        """The uuid of the line that the next message follows."""
        self.blocks: list[Entry] = []
        """The held blocks of the current answer."""

    def encode(self, entry: Entry) -> EncodedLines:
        if not is_unfinished(entry):
            final = entry.message if entry.kind == USAGE else {}
            return self._with(self._release(final), entry)
        if self.blocks and answer_id(self.blocks[0]) == answer_id(entry):
            return EncodedLines([encode_unfinished(entry, self._session_id)], self.parent, [*self.blocks, entry])
        before = self._release({})
        return EncodedLines([*before.lines, encode_unfinished(entry, self._session_id)], before.parent, [entry])

    def release(self) -> EncodedLines:
        """The message lines of the held blocks, for an answer that gets no `usage` entry."""
        return self._release({})

    def commit(self, encoded: EncodedLines) -> None:
        self.parent, self.blocks = encoded.parent, encoded.blocks

    def _release(self, final: Json) -> EncodedLines:
        found = EncodedLines([], self.parent, [])
        for block in self.blocks:
            is_final = answer_id(block) == final.get("id")
            found = self._with(found, with_final_figures(block, final) if is_final else block)
        return found

    def _with(self, before: EncodedLines, entry: Entry) -> EncodedLines:
        added = encode_entry(entry, self._session_id, self._context, before.parent)
        return EncodedLines([*before.lines, added], next_parent(entry) or before.parent, [])


class TranscriptDecoder:
    """Decodes a transcript line by line, and matches the message lines of an answer with its held blocks."""

    def __init__(self) -> None:
        self.parent: str | None = None
        self.blocks: list[Entry] = []
        """The held blocks whose message lines were not read yet."""

    def feed(self, found: Entry, *, is_held: bool) -> list[Entry]:
        """Return the entries that this line completes."""
        if is_held:
            self.blocks.append(found)
            return []
        before, self.blocks = self.blocks, []
        self.parent = next_parent(found) or self.parent
        if not before or found.kind != before[0].kind or found.seq != before[0].seq:
            return [*before, found]
        block, *self.blocks = before
        # The held block is the one that was sent, unless a copy has ids of its own.
        return [block if block.message.get("uuid") == found.message.get("uuid") else found]

    def skip(self, uuid: str) -> list[Entry]:
        """Like `feed`, for a chained line that is not an entry, such as an attachment."""
        before, self.blocks, self.parent = self.blocks, [], uuid
        return before


def is_unfinished(entry: Entry) -> bool:
    """Whether an entry is a block of an answer that may continue."""
    if entry.kind != "assistant" or entry.message.get("is_api_error_message"):
        return False
    return inner_message(entry).get("stop_reason") is None and answer_id(entry) is not None


def answer_id(entry: Entry) -> object:
    return inner_message(entry).get("id")


def inner_message(entry: Entry) -> Json:
    found = entry.message.get("message")
    return found if isinstance(found, dict) else {}


def with_final_figures(block: Entry, final: Json) -> Entry:
    """A block with the final usage and stop reason of its answer."""
    figures = {name: value for name, value in final.items() if name != "id"}
    return replace(block, message={**block.message, "message": {**inner_message(block), **figures}})


def with_all_figures(entries: Iterable[Entry]) -> list[Entry]:
    """The entries, with the final figures in each block of an answer."""
    found = list(entries)
    figures = {entry.message.get("id"): entry.message for entry in found if entry.kind == USAGE}
    return [
        with_final_figures(entry, figures[answer_id(entry)])
        if is_unfinished(entry) and answer_id(entry) in figures
        else entry
        for entry in found
    ]
