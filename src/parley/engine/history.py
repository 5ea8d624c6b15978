"""The conversation as the model sees it.

Append-only: what was sent once is sent again byte for byte, so that the model's
backend finds its prompt cache. `apply` folds one entry of the log; `messages` is
what the next request carries.
"""

from __future__ import annotations

from parley.protocol.base import Json, Struct
from parley.stores.base import Entry

THOUGHTS = ("thinking", "redacted_thinking")


class Said(Struct, frozen=True):
    """One line of the log that is part of the conversation."""

    uuid: str
    role: str
    id: str
    content: list[Json]


class Spoken(Struct):
    """A message of the conversation; an assistant's grows block by block while its id stays the same."""

    role: str
    id: str
    content: list[Json]


class History:
    def __init__(self) -> None:
        self._lines: list[Said] = []
        self._spoken: list[Spoken] = []
        self._complaint: str | None = None
        """What a backend had against the conversation as it is."""
        self.cut_off: set[str] = set()
        """The lines that the last cut left out."""
        self._open_calls: dict[str, Json] = {}

    def open_calls(self) -> dict[str, str]:
        """The tools of calls that have no result yet, by the calls' ids. A request with one of them is refused."""
        return {call: str(block.get("name")) for call, block in self._open_calls.items()}

    def open_uses(self) -> list[Json]:
        """The calls themselves, in their order."""
        return list(self._open_calls.values())

    def apply(self, entry: Entry) -> None:
        """Fold one entry. Entries that are not part of the conversation change nothing."""
        if entry.kind == "cut":
            self._cut(str(entry.message.get("after")))
            return
        if entry.kind not in ("user", "assistant"):
            return
        inner = entry.message["message"]
        content = [] if entry.message.get("is_api_error_message") else inner["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        self._add(Said(str(entry.message.get("uuid")), entry.kind, inner.get("id") or "", blocks))

    def _cut(self, uuid: str) -> None:
        """The conversation goes on behind an earlier line."""
        places = [at for at, line in enumerate(self._lines) if line.uuid == uuid]
        if places:
            self.cut_off = {line.uuid for line in self._lines[places[-1] + 1 :]}
            self._begin_anew(self._lines[: places[-1] + 1])

    def _begin_anew(self, lines: list[Said]) -> None:
        self._lines, self._spoken = [], []
        self._open_calls.clear()
        for line in lines:
            self._add(line)

    def _add(self, said: Said) -> None:
        blocks = said.content
        self._lines.append(said)
        if not blocks:
            return
        for block in blocks:
            if block.get("type") == "tool_use":
                self._open_calls[str(block.get("id"))] = block
            elif block.get("type") == "tool_result":
                self._open_calls.pop(str(block.get("tool_use_id")), None)
        last = self._spoken[-1] if self._spoken else None
        same_message = last is not None and last.role == "assistant" and said.id and last.id == said.id
        if last is not None and (last.role == said.role == "user" or (said.role == "assistant" and same_message)):
            last.content.extend(blocks)
        else:
            self._spoken.append(Spoken(role=said.role, id=said.id, content=list(blocks)))

    def messages(self) -> list[Json]:
        """The messages of the next request, without what the API refuses.

        That is texts without a letter, and thoughts at the end of an answer: it was cut off behind them.
        """
        found: list[Json] = []
        for spoken in self._spoken:
            content = [block for block in spoken.content if says_something(block)]
            while spoken.role == "assistant" and content and content[-1].get("type") in THOUGHTS:
                content.pop()
            if content:
                found.append({"role": spoken.role, "content": content})
        if self._complaint is None:
            return found
        from parley.engine.repair import repaired

        return repaired(found, self._complaint)

    def repair(self, complaint: str) -> bool:
        """Send from now on only what no backend refuses; False if that would be the same as before."""
        before, self._complaint = self.messages(), f"{self._complaint or ''}\n{complaint}"
        return self.messages() != before

    def __len__(self) -> int:
        return len(self._spoken)


def says_something(block: Json) -> bool:
    return block.get("type") != "text" or bool((block.get("text") or "").strip())


def marked(messages: list[Json]) -> list[Json]:
    """The messages with a cache marker on the last block: the next request reads up to here."""
    if not messages:
        return messages
    *before, last = messages
    *blocks, block = last["content"]
    marked_block = {**block, "cache_control": {"type": "ephemeral"}}
    return [*before, {**last, "content": [*blocks, marked_block]}]
