"""The conversation as the model sees it, and when it is compacted.

Append-only: messages that were sent are sent again byte for byte, so that the backend's prompt cache works.
`apply` folds one entry of the log; `render` returns the messages of the next request.

A thinking block is bound to what stood before it. Models with preserved thinking answer 400 if the system prompt, the
tools or a message before it has changed, or if another model made it. So the log has two facts about each block: the
model that was asked, and a digest of the request that was answered. A request contains the block if both still hold,
whatever has happened since: another model, a compaction, another system prompt, a repair, a rewind.

Two kinds of entry start over. A `compact_boundary` takes effect with its summary: the conversation is then the
summary and the lines that the boundary preserves. A `conversation_reset` leaves nothing.

A conversation is compacted before a model call that would leave too little of the window for the answer. If that makes
enough room, only the old tool results are removed. Otherwise the messages become a summary; the last group stays. A
group is a prompt, or an answer with the results of its calls, so that a call and its result stay together.

See also: `compactor.py` gets the summary.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from operator import is_
from typing import Any

import msgspec

from parley.engine.context.system_prompt import MARKER
from parley.errors import UsageError
from parley.models.base import SettledMessages
from parley.models.catalog import CHARS_PER_TOKEN
from parley.protocol.base import Json, Struct
from parley.stores.base import Entry

MEMORY_MARK = "Contents of /"
"""How the line before the text of a memory file begins."""
THOUGHTS = ("thinking", "redacted_thinking")
BINDING = "thinkingBinding"
"""The field of a line of the log that says what its thinking is bound to."""
MEDIA = ("image", "document")
IMAGE_TOKENS = 1_600
"""An estimate for an image of any size."""
DOCUMENT_CHARS_PER_TOKEN = 100
"""A page has about 2,500 tokens. It takes about 50 KB with its fonts, or 500 KB as an image."""
ANSWER_TOKENS = 10_000
"""What the next answer is expected to take at least."""
SPARE_TOKENS = 5_000
"""For what an estimate leaves out."""
ANSWER_GROWTH = 2
"""How much longer than the longest answer the next one can be."""
CUT_RESULT = "[This result was removed to make room. If you need it, call the tool again.]"
CUT_LEAST_RESULT_TOKENS = 100
"""A shorter result stays: it takes hardly more room than the note in its place."""
CUT_KEEP_SHARE = 0.25
"""How much of the threshold the latest messages fill, whose results stay."""
CUT_WORTH_SHARE = 0.3
"""How much of the threshold must become free; otherwise the conversation is summarized."""
CUT_LEAST_TOKENS = 30_000
"""Below this threshold the results would soon have to be removed again, so the conversation is summarized."""
KEPT_SHARE = 0.2
"""A last group larger than this share of the threshold is summarized too."""
GROWTH_SHARE = 0.1
"""The growth since the last compaction that allows the next one. If the instructions alone fill the window,
repeated compaction does not help."""
DIGEST_BYTES = 16
MAX_IMAGE_CHARS = 5 * 1024 * 1024
"""What the Messages API takes."""
MAX_FAILURES = 2
MIN_SHARE = 0.5
"""A backend's count below this share of the estimate is not trusted."""


class Binding(Struct, frozen=True, gc=False):
    """What a thinking block is bound to; empty fields if it is unknown."""

    owner: str = ""
    """Whose thinking it is (`models.catalog.thinking_owner`)."""
    prefix: str = ""
    """The digest of the request that was answered."""
    seq: int = 0
    """The sequence number of its line in the log."""


class Reader(Struct, frozen=True):
    """Whom the messages are for."""

    owner: str
    """The model, as in `Binding`."""
    start: bytes
    """The digest of the system prompt and the tools."""
    convert: Callable[[list[Json]], list[Json]]
    """Applied to the blocks of the user. Depends on nothing that can change."""
    max_image_chars: int | None = None
    """The largest image, in base64."""


class HistoryEntry(Struct, frozen=True, gc=False):
    """One line of the log that is part of the conversation."""

    uuid: str
    role: str
    id: str
    content: list[Json]
    seq: int = 0
    """Its sequence number in the log."""
    summaries: tuple[Json, ...] = ()
    """If it is a row of summaries (memory/summarizer.py), what each covers."""
    is_prompt: bool = False
    """It is a prompt: not a result, a summary, or text that the engine adds."""
    binding: Binding | None = None
    """If it contains thinking, what that is bound to."""


class HistoryMessage(Struct, gc=False):
    """A part of the conversation: an answer, its results with added context, or a prompt.

    An answer grows block by block under one id. A request joins consecutive parts of the user into one message.
    """

    role: str
    id: str
    content: list[Json]
    uuids: list[str]
    """The lines that it consists of."""
    is_closed: bool = False
    """It contains a prompt or results, so the next prompt starts a new part."""
    bindings: list[Binding] = []
    """Of its thinking blocks, in their order."""


class History:
    def __init__(self) -> None:
        self._entries: list[HistoryEntry] = []
        self._earlier: list[list[HistoryEntry]] = []
        """The entries before each restart, for rewinding."""
        self._messages: list[HistoryMessage] = []
        self._settled: list[Json] = []
        """The messages of a request that no later line can change."""
        self._settled_parts = 0
        """How many of `_messages` they consist of."""
        self._settled_digest = b""
        """Of the settled messages and what comes before them."""
        self._rendered: SettledMessages | None = None
        """What `render` returned last."""
        self._reader: Reader | None = None
        self._replaced: dict[str, bool] = {}
        """Why images are not sent, and whether that was reported."""
        self.prefix = ""
        """The digest of the request that `render` made last: what thinking in its answer is bound to."""
        self._rejection: str | None = None
        """Why a backend rejected the conversation."""
        self._unread_seq = -1
        """The thinking up to this line is left out, because a backend rejected some of it."""
        self._refused: frozenset[str] = frozenset()
        """The images and documents that it rejected (history_repair.py)."""
        self.cut_off: set[str] = set()
        """The lines that the last cut removed."""
        self.tokens = 0
        """An estimate for the conversation."""
        self.media_tokens = 0
        """The part for images and documents, which is a rough guess."""
        self.dropped_tokens = 0
        """An estimate of what all compactions removed."""
        self._boundary: Json | None = None
        """The last boundary, until its summary is applied."""
        self.last_prompt: HistoryEntry | None = None
        """The last prompt, also if it is no longer part of the conversation."""
        self._open_calls: dict[str, Json] = {}
        self.results: dict[str, Any] = {}
        """The results that the model can see, by call, without errors."""
        self._removed: set[tuple[str, str]] = set()
        """The lines and calls whose results were removed to make room. Some servers use the ids of calls again."""
        self.memory_texts: list[str] = []
        """The texts of the user or the engine that may contain memory files."""

    def open_calls(self) -> dict[str, str]:
        """The tool names of calls without a result, by call id. Backends reject a request with such a call."""
        return {call: str(block.get("name")) for call, block in self._open_calls.items()}

    def open_tool_uses(self) -> list[Json]:
        """The calls without a result, in order."""
        return list(self._open_calls.values())

    def apply(self, entry: Entry) -> None:
        """Fold one entry. Entries outside the conversation change nothing."""
        if entry.kind not in ("user", "assistant"):
            self._apply_mark(entry)
            return
        inner = entry.message["message"]
        content = [] if entry.message.get("is_api_error_message") else inner["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        line = HistoryEntry(
            str(entry.message.get("uuid")),
            entry.kind,
            inner.get("id") or "",
            blocks,
            entry.seq,
            binding=find_binding(entry, blocks) if entry.kind == "assistant" else None,
        )
        if is_prompt(entry, blocks):
            line = self.last_prompt = msgspec.structs.replace(line, is_prompt=True)
        if self._boundary is not None and is_summary(entry, self._boundary):
            metadata = self._boundary.get("compact_metadata") or {}
            self.dropped_tokens = metadata.get("cumulative_dropped_tokens") or 0
            line = msgspec.structs.replace(line, summaries=tuple(metadata.get("distilled") or ()), is_prompt=False)
            self._earlier.append(self._entries)
            self._restart([line, *preserved_entries(self._entries, self._boundary)])
        else:
            self._add(line)

    def _apply_mark(self, entry: Entry) -> None:
        """Apply an entry that cuts or restarts the conversation."""
        if entry.kind == "cut":
            self._cut(str(entry.message.get("after")))
        elif entry.kind == "system" and entry.message.get("subtype") == "compact_boundary":
            self._boundary = entry.message
        elif entry.kind == "repair":
            self._rejection = str(entry.message.get("reason"))
            self._refused = frozenset(map(str, entry.message.get("refused") or ()))
            self._unread_seq = int(entry.message.get("unread_seq", -1))
            self._forget_settled()
        elif entry.kind == "results_removed":
            calls = frozenset(map(str, entry.message["calls"]))
            self._removed |= {
                (line.uuid, call)
                for line in self._entries
                for call in calls & {str(block.get("tool_use_id")) for block in find_results(line)}
            }
            self._restart(self._entries)
        elif entry.kind == "conversation_reset":
            self._earlier.append(self._entries)
            self._restart([])
            self.last_prompt = None

    def _cut(self, uuid: str) -> None:
        """Continue after an earlier line."""
        for number, lines in reversed([*enumerate([*self._earlier, self._entries])]):
            places = [at for at, line in enumerate(lines) if line.uuid == uuid]
            if places:
                self.cut_off = {line.uuid for line in lines[places[-1] + 1 :]}
                del self._earlier[number:]
                self._restart(lines[: places[-1] + 1])
                self.last_prompt = next((line for line in reversed(self._entries) if line.is_prompt), None)
                return

    def _restart(self, lines: list[HistoryEntry]) -> None:
        self._entries, self._messages, self._boundary, self.tokens, self.media_tokens = [], [], None, 0, 0
        self._forget_settled()
        self._open_calls.clear()
        self.results.clear()
        self.memory_texts.clear()
        for line in lines:
            self._add(line)

    def _add(self, line: HistoryEntry) -> None:
        self._entries.append(line)
        blocks = line.content
        if self._removed and line.role == "user":
            blocks = [
                {**block, "content": CUT_RESULT} if (line.uuid, block.get("tool_use_id")) in self._removed else block
                for block in blocks
            ]
        if not blocks:
            return
        closes = line.is_prompt
        for block in blocks:
            self.tokens += estimate_tokens(block)
            kind = block.get("type")
            if kind in MEDIA or kind == "tool_result":
                self.media_tokens += estimate_media_tokens(block)
            if kind == "tool_use":
                self._open_calls[str(block.get("id"))] = block
            elif kind == "tool_result":
                call = str(block.get("tool_use_id"))
                self._open_calls.pop(call, None)
                self.results.pop(call, None)
                if not block.get("is_error"):
                    self.results[call] = block.get("content")
                closes = True
            elif kind == "text" and line.role == "user" and MEMORY_MARK in str(block.get("text")):
                self.memory_texts.append(str(block["text"]))
        last = self._messages[-1] if self._messages else None
        if (
            last is None
            or last.role != line.role
            or (line.role == "assistant" and not (line.id and line.id == last.id))
            or (line.is_prompt and last.is_closed)
        ):
            self._messages.append(HistoryMessage(line.role, line.id, blocks, [line.uuid], closes))
            self._bind(line)
            return
        last.is_closed = last.is_closed or closes
        if len(last.uuids) == 1:
            last.content = list(last.content)  # it was shared with the first line
        last.content.extend(blocks)
        last.uuids.append(line.uuid)
        self._bind(line)

    def find_removable(self, threshold: int) -> list[str]:
        """The calls whose results can be removed: the old ones, if that makes enough room; otherwise none."""
        if threshold < CUT_LEAST_TOKENS:
            return []
        kept, freed, found = 0, 0, list[str]()
        for part in reversed(self._messages):
            if kept > threshold * CUT_KEEP_SHARE:
                sizes = {str(block.get("tool_use_id")): estimate_tokens(block) for block in find_results(part)}
                large = {call: size for call, size in sizes.items() if size > CUT_LEAST_RESULT_TOKENS}
                found += large
                freed += sum(large.values())
            kept += message_tokens(part)
        return found if freed > threshold * CUT_WORTH_SHARE else []

    def _bind(self, line: HistoryEntry) -> None:
        if line.binding is not None:
            count = sum(block.get("type") in THOUGHTS for block in line.content)
            self._messages[-1].bindings += [line.binding] * count

    def list_messages(self) -> list[HistoryMessage]:
        """The parts with their lines. Read-only."""
        return self._messages

    def list_entries(self) -> list[HistoryEntry]:
        """The lines of all parts. Read-only."""
        return self._entries

    def read_by(self, reader: Reader | None) -> None:
        """Render for this model from now on; None for one that takes everything."""
        if reader != self._reader:
            self._reader = reader
            self._forget_settled()

    def _forget_settled(self) -> None:
        self._settled, self._settled_parts = [], 0

    def render(self, end: int | None = None) -> list[Json]:
        """The messages of the next request, or those before `end`. Read-only: most are the same objects every time.

        Leaves out what the API rejects: empty texts, thinking that its model may not read or that stood behind other
        messages, and thinking at the end of an answer that was cut off.
        """
        if self._rejection is not None:
            return self._render_repaired(end)
        reader = self._reader
        is_early = end is not None and end < self._settled_parts
        start = 0 if is_early else self._settled_parts
        found: list[Json] = [] if is_early else self._list_settled()
        digest = MessageDigest(reader)
        if start:
            digest.continue_from(self._settled_digest, len(found))
        for at, part in enumerate(self._messages[start:end], start):
            if part.role == "user":
                self._join_user_message(found, part)
                continue
            digest.extend(found)
            content = [
                block for block in keep_thinking(part, digest.value, reader, self._unread_seq) if is_nonempty(block)
            ]
            while content and content[-1].get("type") in THOUGHTS:
                content.pop()
            if content:
                found.append({"role": part.role, "content": content})
            if content and self._settled_parts <= at < len(self._messages) - 1:
                # Only the last part grows, and only messages of the user are joined.
                self._settled += found[len(self._settled) :]
                self._settled_parts = at + 1
                digest.extend(found)
                self._settled_digest = digest.value
        if isinstance(found, SettledMessages):
            found.settled, self._rendered = len(self._settled), found
        digest.extend(found)
        self.prefix = digest.value.hex()
        return found

    def _render_repaired(self, end: int | None) -> list[Json]:
        """The messages without what a backend has rejected. What thinking stands behind may have changed."""
        from parley.engine.context.history_repair import repair_messages

        reader, found = self._reader, list[Json]()
        bindings: dict[int, Binding] = {}
        for part in self._messages[:end]:
            if part.role == "user":
                self._join_user_message(found, part)
            else:
                thoughts = [block for block in part.content if block.get("type") in THOUGHTS]
                bindings |= zip(map(id, thoughts), part.bindings, strict=True)
                found.append({"role": part.role, "content": part.content})
        digest, kept = MessageDigest(reader), list[Json]()
        for message in repair_messages(found, self._refused):
            digest.extend(kept)
            if message["role"] == "assistant":
                content = [
                    block
                    for block in message["content"]
                    if block.get("type") not in THOUGHTS
                    or is_readable(bindings[id(block)], digest.value, reader, self._unread_seq)
                ]
                while content and content[-1].get("type") in THOUGHTS:
                    content.pop()
                kept += [{**message, "content": content}] if content else []
            else:
                kept.append(message)
        digest.extend(kept)
        self.prefix = digest.value.hex()
        return kept

    def _join_user_message(self, found: list[Json], part: HistoryMessage) -> None:
        """Append a part of the user to the messages. Neighbours become one message."""
        content = [block for block in part.content if is_nonempty(block)]
        if self._reader is not None:
            content = self._reader.convert([self._clean(block, self._reader) for block in content])
        if found and found[-1]["role"] == "user":
            content = [*found.pop()["content"], *content]
        if len(content) > 1 and found:
            content = order_results(content, found[-1]["content"])
        if content:
            found.append({"role": part.role, "content": content})

    def _clean(self, block: Json, reader: Reader) -> Json:
        """A block of the user without what the API is known to reject: empty texts in results, unreadable images.

        It has no cache markers either: with those of a client, a request could have too many.
        """
        if MARKER in block:
            block = {key: value for key, value in block.items() if key != MARKER}
        if block.get("type") == "tool_result" and isinstance(parts := block.get("content"), list):
            cleaned = [self._clean(part, reader) for part in parts if is_nonempty(part)]
            is_same = len(cleaned) == len(parts) and all(map(is_, cleaned, parts))
            return block if is_same else {**block, "content": cleaned or ""}
        if block.get("type") != "image":
            return block
        from parley.engine.context.history_repair import find_image_problem

        problem = find_image_problem(block.get("source"), reader.max_image_chars)
        if problem is None:
            return block
        self._replaced.setdefault(problem, False)
        return {"type": "text", "text": f"[An image was here. {problem}]"}

    def take_replaced(self) -> list[str]:
        """Why images are not sent, as far as it was not reported yet."""
        new = [problem for problem, is_reported in self._replaced.items() if not is_reported]
        self._replaced |= dict.fromkeys(new, True)
        return new

    def _list_settled(self) -> SettledMessages:
        """A list of the settled messages, to be continued.

        To fill one takes time that grows with the conversation, so the last one is used again, unless it is in use.
        """
        if self._rendered is None or self._rendered.origin is not self._settled or sys.getrefcount(self._rendered) > 2:
            return SettledMessages(self._settled, self._settled)
        found, self._rendered = self._rendered, None
        del found[found.settled :]
        found += self._settled[len(found) :]
        return found

    def repair(self, reason: str) -> Json | None:
        """The entry for the log that makes the conversation acceptable again; None if there is nothing to repair.

        From then on, only what backends accept is sent.
        """
        from parley.engine.context.history_repair import find_blamed, is_about_thinking

        before, seq = self.render(), self._entries[-1].seq if self._entries else -1
        entry = {"reason": reason, "refused": sorted(self._refused), "unread_seq": self._unread_seq}
        if is_about_thinking(reason):
            entry["unread_seq"] = seq
        if not self._would_change(entry, before):
            entry["refused"] = sorted(self._refused | find_blamed(before, reason))
        return entry if self._would_change(entry, before) else None

    def _would_change(self, entry: Json, before: list[Json]) -> bool:
        state = self._rejection, self._refused, self._unread_seq, self.prefix
        self._rejection, self._refused, self._unread_seq = (
            entry["reason"],
            frozenset(entry["refused"]),
            entry["unread_seq"],
        )
        changes = self.render() != before
        self._rejection, self._refused, self._unread_seq, self.prefix = state
        return changes


def make_digest(*parts: object) -> bytes:
    from hashlib import blake2b

    return blake2b(msgspec.json.encode(parts), digest_size=DIGEST_BYTES).digest()


class MessageDigest:
    """A digest of messages, of which more and more are final. Without a reader it stays empty."""

    def __init__(self, reader: Reader | None) -> None:
        self.value = b"" if reader is None else reader.start
        self._count = 0
        self._is_needed = reader is not None

    def continue_from(self, value: bytes, count: int) -> None:
        self.value, self._count = value, count

    def extend(self, messages: list[Json]) -> None:
        """All these messages are final."""
        if self._is_needed:
            from hashlib import blake2b

            for message in messages[self._count :]:
                self.value = blake2b(msgspec.json.encode(message), digest_size=DIGEST_BYTES, key=self.value).digest()
            self._count = len(messages)


def find_binding(entry: Entry, blocks: list[Json]) -> Binding | None:
    """What the thinking in a line is bound to; None if there is no thinking."""
    if not any(block.get("type") in THOUGHTS for block in blocks):
        return None
    known = entry.context.get(BINDING)
    if not isinstance(known, dict):
        return Binding(seq=entry.seq)
    return Binding(str(known.get("owner")), str(known.get("prefix")), entry.seq)


def keep_thinking(part: HistoryMessage, digest: bytes, reader: Reader | None, unread_seq: int) -> list[Json]:
    """The blocks of an answer without the thinking that may not be sent."""
    if reader is None or not part.bindings:
        return part.content
    bindings = iter(part.bindings)
    return [
        block
        for block in part.content
        if block.get("type") not in THOUGHTS or is_readable(next(bindings), digest, reader, unread_seq)
    ]


def is_readable(binding: Binding, digest: bytes, reader: Reader | None, unread_seq: int) -> bool:
    """Whether the model may be sent a thinking block."""
    if reader is None:
        return binding.seq > unread_seq
    return binding.seq > unread_seq and binding.owner == reader.owner and binding.prefix == digest.hex()


def is_nonempty(block: Json) -> bool:
    return block.get("type") != "text" or bool((block.get("text") or "").strip())


def order_results(content: list[Json], asked: list[Json]) -> list[Json]:
    """Put the results first, as the API requires, in the order of their calls.

    Concurrent calls end in any order; a request must not depend on it.
    """
    places = {block.get("id"): at for at, block in enumerate(asked) if block.get("type") == "tool_use"}
    if not places:
        return content
    # A call has one result; a later one with the same id stays where it is.
    return sorted(content, key=lambda block: places.pop(block.get("tool_use_id"), len(asked)))


def estimate_tokens(block: Json) -> int:
    """An estimate of the tokens of a block or another object."""
    kind = block.get("type")
    if kind == "text":
        return tokens_from_chars(text_size(block.get("text") or ""))
    if kind == "image":
        return IMAGE_TOKENS
    if kind in THOUGHTS:  # a signature encodes the same text again
        return tokens_from_chars(text_size(block.get("thinking") or block.get("signature") or block.get("data") or ""))
    if kind == "document" and isinstance(source := block.get("source"), dict) and source.get("type") == "base64":
        return -(-len(source.get("data") or "") // DOCUMENT_CHARS_PER_TOKEN)
    if kind == "tool_result" and isinstance(content := block.get("content"), list | str):
        return (
            tokens_from_chars(text_size(content))
            if isinstance(content, str)
            else sum(estimate_tokens(part) for part in content)
        )
    return tokens_from_chars(len(msgspec.json.encode(block)))


def estimate_media_tokens(block: Json) -> int:
    """The part of `estimate_tokens` for images and documents."""
    inner = block.get("content")
    return sum(
        estimate_tokens(part) for part in (inner if isinstance(inner, list) else [block]) if part.get("type") in MEDIA
    )


def text_size(text: str) -> int:
    """The size in bytes: characters of several bytes take more tokens too."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def tokens_from_chars(chars: int) -> int:
    return -(-chars // CHARS_PER_TOKEN)


def is_prompt(entry: Entry, blocks: list[Json]) -> bool:
    """Whether a line is a prompt."""
    if entry.kind != "user" or entry.message.get("isSynthetic") or entry.context.get("isCompactSummary"):
        return False
    return not any(block.get("type") == "tool_result" for block in blocks)


def join_texts(content: list[Json]) -> str:
    return "\n".join(str(block.get("text") or "") for block in content if block.get("type") == "text")


def is_summary(entry: Entry, boundary: Json) -> bool:
    """Whether a line is the summary that a boundary announces."""
    anchor = preserved_segment(boundary).get("anchor_uuid")
    if anchor is not None:
        return bool(entry.message.get("uuid") == anchor)
    return entry.kind == "user" and bool(entry.context.get("isCompactSummary"))


def preserved_entries(lines: list[HistoryEntry], boundary: Json) -> list[HistoryEntry]:
    """The lines before a boundary that stay after its summary."""
    named = (boundary.get("compact_metadata") or {}).get("preserved_messages") or {}
    uuids = frozenset(named.get("all_uuids") or named.get("uuids") or ())
    if uuids:
        return [line for line in lines if line.uuid in uuids]
    places = {line.uuid: at for at, line in enumerate(lines)}
    first, last = (places.get(preserved_segment(boundary).get(end) or "") for end in ("head_uuid", "tail_uuid"))
    return [] if first is None or last is None else lines[first : last + 1]


def preserved_segment(boundary: Json) -> Json:
    found: Json = (boundary.get("compact_metadata") or {}).get("preserved_segment") or {}
    return found


class CompactionPolicy(Struct, frozen=True, kw_only=True):
    """The user's settings for compaction."""

    is_allowed: bool = True
    """False disables /compact too."""
    is_automatic: bool = True
    window: int | None = None
    """Tokens; replaces the window of the model."""
    percent: float | None = None
    """Of the window; can only lower the threshold."""
    max_tokens: int | None = None
    """What the model reads at most, if less than its window."""

    @property
    def has_limit(self) -> bool:
        """Whether the user sets a limit."""
        return self.window is not None or self.max_tokens is not None


def make_policy(
    *, disabled: bool, auto_disabled: bool, flag: str | None, window: int | None, percent: int | None
) -> CompactionPolicy:
    """Combine variables, settings and `--autocompact`. Raises UsageError."""
    words = {"on": True, "true": True, "": True, "off": False, "false": False}
    by_itself = not auto_disabled
    if flag is not None:
        if flag.isdecimal() and int(flag) > 0:
            by_itself, window = True, int(flag)
        elif flag.lower() in words:
            by_itself = words[flag.lower()]
        else:
            raise UsageError(f"--autocompact takes on, off or a number of tokens, not {flag!r}")
    if percent is not None and not 1 <= percent <= 100:
        raise UsageError(f"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE must be from 1 to 100, not {percent}")
    return CompactionPolicy(is_allowed=not disabled, is_automatic=by_itself, window=window or None, percent=percent)


class ContextGauge:
    """How full the window is: the backend's last count plus an estimate of what came after it.

    Some proxies report a constant. An implausible count is ignored, so that the conversation cannot grow without limit.
    """

    def __init__(self) -> None:
        self._measured: tuple[int, int] | None = None
        self._after_last = 0
        self.longest_answer = 0
        """The tokens of the longest answer."""
        self.failures = 0
        """Consecutive failures."""

    def measure(self, counted: int, estimated: int, media: int = 0) -> None:
        """Record the backend's count of a call, beside our estimate of it.

        The `media` part of the estimate is a guess and does not disqualify a count.
        """
        self._measured = (counted, estimated) if counted >= (estimated - media) * MIN_SHARE else None

    def reset(self, history_tokens: int) -> None:
        """Start over after a compaction or reset."""
        self._measured, self._after_last, self.failures = None, history_tokens, 0

    def estimate(self, own: int) -> int:
        """The tokens of the next call, given our own estimate."""
        if self._measured is None:
            return own
        counted, then = self._measured
        return max(0, counted + own - then)

    def is_due(self, context_tokens: int, history_tokens: int, threshold: int) -> bool:
        """Whether the conversation must be compacted before the next call."""
        return context_tokens > threshold and self.has_grown(history_tokens, threshold)

    def has_grown(self, history_tokens: int, threshold: int) -> bool:
        return not self._after_last or history_tokens - self._after_last > threshold * GROWTH_SHARE


def threshold(policy: CompactionPolicy, window: int, answer_tokens: int) -> int:
    """The number of tokens that triggers compaction: at least half of a small window."""
    most = max(window // 2, window - answer_tokens - SPARE_TOKENS)
    bounds = [most] if policy.percent is None else [most, int(window * policy.percent / 100)]
    return min(bounds if policy.max_tokens is None else [*bounds, policy.max_tokens])


def find_keep_start(messages: list[HistoryMessage], max_tokens: int) -> int | None:
    """The index of the first part that is kept; None if too little comes before it.

    An unanswered prompt is always kept, any other last group if it is not too large. Unanswered parts before that
    prompt are kept too, and the work that it interrupted.
    """
    begins = [at for at, part in enumerate(messages) if part.role == "assistant" or not find_results(part)]
    if len(begins) < 2:
        return None
    at = begins[-1]
    size = sum(map(message_tokens, messages[at:]))
    fits = messages[at].role == "user" or size <= max_tokens
    for earlier in reversed(begins[1:-1]):
        size += sum(map(message_tokens, messages[earlier:at]))
        is_answered = messages[at].role == "assistant" or messages[at - 1].role == "assistant"
        if is_answered or size > max_tokens or not is_paired(messages[earlier:]):
            break
        at = earlier
    return at if fits and is_paired(messages[at:]) else len(messages)


def message_tokens(part: HistoryMessage) -> int:
    return sum(map(estimate_tokens, part.content))


def is_paired(messages: Iterable[HistoryMessage]) -> bool:
    """Whether every call is followed by its result, and every result has a call before it."""
    open_calls: set[str] = set()
    for message in messages:
        for block in message.content:
            if block.get("type") == "tool_use":
                open_calls.add(str(block.get("id")))
            elif block.get("type") == "tool_result":
                if str(block.get("tool_use_id")) not in open_calls:
                    return False
                open_calls.remove(str(block.get("tool_use_id")))
    return not open_calls


def find_results(message: HistoryMessage | HistoryEntry) -> list[Json]:
    return [block for block in message.content if block.get("type") == "tool_result"]
