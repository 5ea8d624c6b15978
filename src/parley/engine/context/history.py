"""The conversation as the model sees it.

Append-only: what was sent once is sent again byte for byte, so that the model's
backend finds its prompt cache. `apply` folds one entry of the log; `messages` is
what the next request carries.

Two kinds of entry begin anew. A `compact_boundary` counts when the summary that belongs to it
is there: then the conversation is that summary and the lines that the boundary preserves. A
`conversation_reset` leaves nothing.
"""

from __future__ import annotations

import msgspec

from parley.models.catalog import CHARS_PER_TOKEN
from parley.protocol.base import Json, Struct
from parley.stores.base import Entry

THOUGHTS = ("thinking", "redacted_thinking")
MEDIA = ("image", "document")
IMAGE_TOKENS = 1_600
"""About what the API counts for a picture, however many bytes it has."""
DOCUMENT_CHARS_PER_TOKEN = 100
"""A page has some 2,500 tokens; with its fonts it has some 50 KB, and some 500 KB as a picture."""


class Said(Struct, frozen=True, gc=False):
    """One line of the log that is part of the conversation."""

    uuid: str
    role: str
    id: str
    content: list[Json]
    seq: int = 0
    """Its number in the log."""
    distilled: tuple[Json, ...] = ()
    """Of a line of summaries (memory/summary_levels.py), what each of them covers."""
    is_prompt: bool = False
    """Whether somebody asks for something with it: no result, no summary, nothing that the engine adds."""


class Spoken(Struct, gc=False):
    """A part of the conversation: an answer, its results with what was added to them, or a prompt.

    An answer grows block by block while its id stays the same. A request has parts of the user that follow each
    other as one message.
    """

    role: str
    id: str
    content: list[Json]
    uuids: list[str]
    """The lines it is made of."""
    is_closed: bool = False
    """Whether a prompt or results are in it, so that the next prompt is a part by itself."""


class History:
    def __init__(self) -> None:
        self._lines: list[Said] = []
        self._earlier: list[list[Said]] = []
        """What was said before each new beginning: somebody may go back to it."""
        self._spoken: list[Spoken] = []
        self._complaint: str | None = None
        """What a backend had against the conversation as it is."""
        self._refused: frozenset[str] = frozenset()
        """The images and documents it would not take (history_repair.py)."""
        self.cut_off: set[str] = set()
        """The lines that the last cut left out."""
        self.tokens = 0
        """About how many the conversation has."""
        self.media_tokens = 0
        """Those of pictures and documents among them, which may be far from the truth."""
        self.dropped_tokens = 0
        """About how many compactions took away, all together."""
        self._boundary: Json | None = None
        """The last boundary, until its summary comes."""
        self.asked: Said | None = None
        """The last prompt, whether or not it is still part of the conversation."""
        self._open_calls: dict[str, Json] = {}

    def open_calls(self) -> dict[str, str]:
        """The tools of calls that have no result yet, by the calls' ids. A request with one of them is refused."""
        return {call: str(block.get("name")) for call, block in self._open_calls.items()}

    def open_uses(self) -> list[Json]:
        """The calls themselves, in their order."""
        return list(self._open_calls.values())

    def apply(self, entry: Entry) -> None:
        """Fold one entry. Entries that are not part of the conversation change nothing."""
        if entry.kind not in ("user", "assistant"):
            self._apply_mark(entry)
            return
        inner = entry.message["message"]
        content = [] if entry.message.get("is_api_error_message") else inner["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        said = Said(str(entry.message.get("uuid")), entry.kind, inner.get("id") or "", blocks, entry.seq)
        if is_prompt(entry, blocks):
            said = self.asked = msgspec.structs.replace(said, is_prompt=True)
        if self._boundary is not None and is_summary(entry, self._boundary):
            metadata = self._boundary.get("compact_metadata") or {}
            self.dropped_tokens = metadata.get("cumulative_dropped_tokens") or 0
            said = msgspec.structs.replace(said, distilled=tuple(metadata.get("distilled") or ()), is_prompt=False)
            self._earlier.append(self._lines)
            self._begin_anew([said, *preserved(self._lines, self._boundary)])
        else:
            self._add(said)

    def _apply_mark(self, entry: Entry) -> None:
        """An entry that says how the conversation goes on."""
        if entry.kind == "cut":
            self._cut(str(entry.message.get("after")))
        elif entry.kind == "system" and entry.message.get("subtype") == "compact_boundary":
            self._boundary = entry.message
        elif entry.kind == "conversation_reset":
            self._earlier.append(self._lines)
            self._begin_anew([])
            self.asked = None

    def _cut(self, uuid: str) -> None:
        """The conversation goes on behind an earlier line."""
        for number, lines in reversed([*enumerate([*self._earlier, self._lines])]):
            places = [at for at, line in enumerate(lines) if line.uuid == uuid]
            if places:
                self.cut_off = {line.uuid for line in lines[places[-1] + 1 :]}
                del self._earlier[number:]
                self._begin_anew(lines[: places[-1] + 1])
                self.asked = next((line for line in reversed(self._lines) if line.is_prompt), None)
                return

    def _begin_anew(self, lines: list[Said]) -> None:
        self._lines, self._spoken, self._boundary, self.tokens, self.media_tokens = [], [], None, 0, 0
        self._open_calls.clear()
        for line in lines:
            self._add(line)

    def _add(self, said: Said) -> None:
        blocks = said.content
        self._lines.append(said)
        if not blocks:
            return
        closes = said.is_prompt
        for block in blocks:
            self.tokens += weight(block)
            kind = block.get("type")
            if kind in MEDIA or kind == "tool_result":
                self.media_tokens += media_weight(block)
            if kind == "tool_use":
                self._open_calls[str(block.get("id"))] = block
            elif kind == "tool_result":
                self._open_calls.pop(str(block.get("tool_use_id")), None)
                closes = True
        last = self._spoken[-1] if self._spoken else None
        if (
            last is None
            or last.role != said.role
            or (said.role == "assistant" and not (said.id and said.id == last.id))
            or (said.is_prompt and last.is_closed)
        ):
            self._spoken.append(Spoken(said.role, said.id, blocks, [said.uuid], closes))
            return
        last.is_closed = last.is_closed or closes
        if len(last.uuids) == 1:
            last.content = list(last.content)  # so far it was its first line's own
        last.content.extend(blocks)
        last.uuids.append(said.uuid)

    def spoken(self) -> list[Spoken]:
        """The parts, each with the lines it is made of. Not to be changed."""
        return self._spoken

    def lines(self) -> list[Said]:
        """The lines that the messages are made of. Not to be changed."""
        return self._lines

    def messages(self, end: int | None = None) -> list[Json]:
        """The messages of the next request, or those before `end`, without what the API refuses.

        That is texts without a letter, and thoughts at the end of an answer: it was cut off behind them.
        """
        found: list[Json] = []
        for spoken in self._spoken[:end]:
            content = [block for block in spoken.content if says_something(block)]
            if spoken.role == "user" and found and found[-1]["role"] == "user":
                content = [*found.pop()["content"], *content]
            if spoken.role == "user" and len(content) > 1 and found:
                content = in_order_of_calls(content, found[-1]["content"])
            while spoken.role == "assistant" and content and content[-1].get("type") in THOUGHTS:
                content.pop()
            if content:
                found.append({"role": spoken.role, "content": content})
        if self._complaint is None:
            return found
        from parley.engine.context.history_repair import repaired

        return repaired(found, self._complaint, self._refused)

    def repair(self, complaint: str) -> bool:
        """Send from now on only what no backend refuses; False if that would be the same as before."""
        from parley.engine.context.history_repair import blamed

        before, self._complaint = self.messages(), f"{self._complaint or ''}\n{complaint}"
        if self.messages() == before:
            self._refused |= blamed(before, complaint)
        return self.messages() != before


def says_something(block: Json) -> bool:
    return block.get("type") != "text" or bool((block.get("text") or "").strip())


def in_order_of_calls(content: list[Json], asked: list[Json]) -> list[Json]:
    """The results first, as the API wants them, each at the place of its call.

    Calls that ran together end in any order; a request must not depend on which of them was quicker.
    """
    places = {block.get("id"): at for at, block in enumerate(asked) if block.get("type") == "tool_use"}
    if not places:
        return content
    # A call has one result; what came later under its id stays where it was said.
    return sorted(content, key=lambda block: places.pop(block.get("tool_use_id"), len(asked)))


def marked(messages: list[Json]) -> list[Json]:
    """The messages with a cache marker on the last block: the next request reads up to here."""
    if not messages:
        return messages
    *before, last = messages
    *blocks, block = last["content"]
    marked_block = {**block, "cache_control": {"type": "ephemeral"}}
    return [*before, {**last, "content": [*blocks, marked_block]}]


def weight(block: Json) -> int:
    """About how many tokens a block takes, or another object."""
    kind = block.get("type")
    if kind == "text":
        return tokens(size(block.get("text") or ""))
    if kind == "image":
        return IMAGE_TOKENS
    if kind in THOUGHTS:  # a signature only spells the thought once more
        return tokens(size(block.get("thinking") or block.get("signature") or block.get("data") or ""))
    if kind == "document" and isinstance(source := block.get("source"), dict) and source.get("type") == "base64":
        return -(-len(source.get("data") or "") // DOCUMENT_CHARS_PER_TOKEN)
    if kind == "tool_result" and isinstance(block.get("content"), list):
        return sum(weight(part) for part in block["content"])
    return tokens(len(msgspec.json.encode(block)))


def media_weight(block: Json) -> int:
    """How much of that is for pictures and documents."""
    inner = block.get("content")
    return sum(weight(part) for part in (inner if isinstance(inner, list) else [block]) if part.get("type") in MEDIA)


def size(text: str) -> int:
    """Characters, as many as bytes: those that take several of them take more tokens as well."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def tokens(chars: int) -> int:
    return -(-chars // CHARS_PER_TOKEN)


def is_prompt(entry: Entry, blocks: list[Json]) -> bool:
    """Whether a line is what somebody asks for."""
    if entry.kind != "user" or entry.message.get("isSynthetic") or entry.context.get("isCompactSummary"):
        return False
    return not any(block.get("type") == "tool_result" for block in blocks)


def words_in(content: list[Json]) -> str:
    """The texts of a message."""
    return "\n".join(str(block.get("text") or "") for block in content if block.get("type") == "text")


def is_summary(entry: Entry, boundary: Json) -> bool:
    """Whether a line is the summary that a boundary announces."""
    anchor = segment(boundary).get("anchor_uuid")
    if anchor is not None:
        return bool(entry.message.get("uuid") == anchor)
    return entry.kind == "user" and bool(entry.context.get("isCompactSummary"))


def preserved(lines: list[Said], boundary: Json) -> list[Said]:
    """The lines before a boundary that are said again behind its summary."""
    named = (boundary.get("compact_metadata") or {}).get("preserved_messages") or {}
    uuids = frozenset(named.get("all_uuids") or named.get("uuids") or ())
    if uuids:
        return [line for line in lines if line.uuid in uuids]
    places = {line.uuid: at for at, line in enumerate(lines)}
    first, last = (places.get(segment(boundary).get(end) or "") for end in ("head_uuid", "tail_uuid"))
    return [] if first is None or last is None else lines[first : last + 1]


def segment(boundary: Json) -> Json:
    found: Json = (boundary.get("compact_metadata") or {}).get("preserved_segment") or {}
    return found
