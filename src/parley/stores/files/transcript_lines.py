"""Which lines an entry adds to a transcript.

An answer is kept block by block while it streams, before each block is told. What the whole answer cost, and why it
ended, is known only at its end, and programs that count tokens take both from the lines of the conversation. So an
unfinished block is kept as a line of ours first (`held`). The lines of the conversation follow as soon as the
answer is over: with the entry `usage`, which has the final figures, or without one with whatever comes next.

    spelling = Spelling(session_id, context)
    spelled = spelling.of(entry)          # nothing has changed yet: a write may fail
    spelling.take(spelled)                # the lines are written

`Reading` is the other direction: it gives each block once.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from parley.protocol.base import Json, Struct
from parley.stores.base import USAGE, Entry
from parley.stores.files.entry_codec import Context, held, line, next_parent


class Spelled(Struct, frozen=True):
    lines: list[Json]
    parent: str | None
    blocks: list[Entry]


class Spelling:
    """Spells the entries of one transcript, in their order."""

    def __init__(self, session_id: str, context: Context) -> None:
        self._session_id = session_id
        self._context = context
        self.parent: str | None = None
        """The line that the next one of the conversation follows."""
        self.blocks: list[Entry] = []
        """The held blocks whose lines are still to come: of one answer."""

    def of(self, entry: Entry) -> Spelled:
        if not is_unfinished(entry):
            final = entry.message if entry.kind == USAGE else {}
            return self._with(self._released(final), entry)
        if self.blocks and answer_id(self.blocks[0]) == answer_id(entry):
            return Spelled([held(entry, self._session_id)], self.parent, [*self.blocks, entry])
        before = self._released({})
        return Spelled([*before.lines, held(entry, self._session_id)], before.parent, [entry])

    def released(self) -> Spelled:
        """The lines of the held blocks, which nothing more will be heard of."""
        return self._released({})

    def take(self, spelled: Spelled) -> None:
        self.parent, self.blocks = spelled.parent, spelled.blocks

    def _released(self, final: Json) -> Spelled:
        found = Spelled([], self.parent, [])
        for block in self.blocks:
            is_final = answer_id(block) == final.get("id")
            found = self._with(found, finished(block, final) if is_final else block)
        return found

    def _with(self, before: Spelled, entry: Entry) -> Spelled:
        added = line(entry, self._session_id, self._context, before.parent)
        return Spelled([*before.lines, added], next_parent(entry) or before.parent, [])


class Reading:
    """Follows a transcript line by line, and puts the lines of an answer in the place of its held blocks."""

    def __init__(self) -> None:
        self.parent: str | None = None
        self.blocks: list[Entry] = []
        """The held blocks whose lines did not come yet."""

    def feed(self, found: Entry, *, is_held: bool) -> list[Entry]:
        """The entries that are read with a line."""
        if is_held:
            self.blocks.append(found)
            return []
        before, self.blocks = self.blocks, []
        self.parent = next_parent(found) or self.parent
        if not before or found.kind != before[0].kind or found.seq != before[0].seq:
            return [*before, found]
        block, *self.blocks = before
        # It is the one that was told, unless a copy has ids of its own.
        return [block if block.message.get("uuid") == found.message.get("uuid") else found]

    def pass_by(self, uuid: str) -> list[Entry]:
        """The same for a line of the conversation that is no entry: an attachment, a notice."""
        before, self.blocks, self.parent = self.blocks, [], uuid
        return before


def is_unfinished(entry: Entry) -> bool:
    """Whether an entry is a block of an answer that may go on."""
    if entry.kind != "assistant" or entry.message.get("is_api_error_message"):
        return False
    return inner(entry).get("stop_reason") is None and answer_id(entry) is not None


def answer_id(entry: Entry) -> object:
    return inner(entry).get("id")


def inner(entry: Entry) -> Json:
    found = entry.message.get("message")
    return found if isinstance(found, dict) else {}


def finished(block: Entry, final: Json) -> Entry:
    """A block with the final figures of its answer."""
    figures = {name: value for name, value in final.items() if name != "id"}
    return replace(block, message={**block.message, "message": {**inner(block), **figures}})


def with_figures(entries: Iterable[Entry]) -> list[Entry]:
    """The entries, each block of an answer with the final figures."""
    found = list(entries)
    figures = {entry.message.get("id"): entry.message for entry in found if entry.kind == USAGE}
    return [
        finished(entry, figures[answer_id(entry)]) if is_unfinished(entry) and answer_id(entry) in figures else entry
        for entry in found
    ]
