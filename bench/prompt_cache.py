"""The prompt cache of the Messages API, simulated: what a request reads, writes and pays.

    cache = PromptCache()
    bill = cache.charge(body, now_seconds)         # raises InvalidRequest for a request that the API refuses

The rules are those of the page "Prompt caching" of platform.claude.com. `tests/unit/bench/test_prompt_cache.py` tests
each of them.

- The prefix is the tools, then the system prompt, then the messages, block by block. Deferred tools are not part of it.
- A request has at most 4 markers; those of an hour come before those of five minutes. A marker writes the prefix that
  ends with its block, if that is long enough for the model.
- A request reads the longest prefix that was written. From each marker, 20 blocks are compared: its own and the 19
  before it.
- A prefix lives for the time of its marker, and as long again after each use.
- The thinking configuration and the choice of a tool belong to the messages: with others, only tools and system prompt
  are read.
- Reading costs a tenth of the price of input, writing 1.25 of it, or 2 for an hour.

A token is four bytes of JSON, and an image has as many as in the engine's own estimate.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MAX_MARKERS = 4
LOOKBACK = 20
BYTES_PER_TOKEN = 4
IMAGE_TOKENS = 1_600
TTL_SECONDS = {"5m": 300, "1h": 3_600}
MIN_TOKENS = (("opus-4-", 4_096), ("haiku-4-5", 4_096), ("haiku-3", 2_048), ("", 1_024))
"""The shortest prefix that is written, by a part of the name of the model. The first row that fits applies."""
INPUT_USD, OUTPUT_USD = 3 / 1e6, 15 / 1e6
"""Per token, as for Sonnet."""
READ, WRITE, WRITE_1H = 0.1, 1.25, 2.0
UNMARKABLE = ("thinking", "redacted_thinking")

Json = dict[str, Any]


class InvalidRequest(Exception):
    """The API answers 400."""


@dataclass(frozen=True)
class Bill:
    """The tokens of one request."""

    read: int = 0
    written: int = 0
    """For five minutes."""
    written_1h: int = 0
    fresh: int = 0
    """Neither read nor written."""
    output: int = 0

    def __add__(self, other: Bill) -> Bill:
        return Bill(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    @property
    def input(self) -> int:
        return self.read + self.written + self.written_1h + self.fresh

    @property
    def usd(self) -> float:
        weighted = self.read * READ + self.written * WRITE + self.written_1h * WRITE_1H + self.fresh
        return weighted * INPUT_USD + self.output * OUTPUT_USD

    @property
    def usage(self) -> Json:
        """The `usage` of the answer."""
        return {
            "input_tokens": self.fresh,
            "cache_read_input_tokens": self.read,
            "cache_creation_input_tokens": self.written + self.written_1h,
            "cache_creation": {
                "ephemeral_5m_input_tokens": self.written,
                "ephemeral_1h_input_tokens": self.written_1h,
            },
            "output_tokens": self.output,
        }


@dataclass(frozen=True)
class Block:
    """One block of the prefix."""

    key: bytes
    """Of the prefix that ends here."""
    end: int
    """The tokens of that prefix."""
    ttl: str
    """Of its marker; empty if it has none."""


class PromptCache:
    def __init__(self) -> None:
        self._entries: dict[bytes, tuple[float, int]] = {}
        """When each prefix expires, and for how long it lives after a use."""

    def charge(self, body: Json, now: float) -> Bill:
        """What the input of a request costs. Raises InvalidRequest."""
        blocks = list(list_blocks(body))
        marked = [at for at, block in enumerate(blocks) if block.ttl]
        check_markers([blocks[at].ttl for at in marked])
        total = blocks[-1].end if blocks else 0
        found = max((at for at in (self._look_back(blocks, at, now) for at in marked) if at >= 0), default=-1)
        read = blocks[found].end if found >= 0 else 0
        if found >= 0:
            self._use(blocks[found].key, now)
        shortest = next(tokens for part, tokens in MIN_TOKENS if part in body.get("model", ""))
        ends = {"1h": read, "5m": read}
        for at in marked:
            block = blocks[at]
            if block.end < shortest:
                continue
            seconds = TTL_SECONDS[block.ttl]
            # What another request has written for longer stays so.
            expires, known = self._entries.get(block.key, (0.0, 0))
            self._entries[block.key] = (max(expires, now + seconds), known if expires > now + seconds else seconds)
            ends[block.ttl] = max(ends[block.ttl], block.end)
        written_1h = ends["1h"] - read
        written = max(0, ends["5m"] - max(read, ends["1h"]))
        return Bill(read=read, written=written, written_1h=written_1h, fresh=total - read - written - written_1h)

    def _look_back(self, blocks: list[Block], start: int, now: float) -> int:
        """The last block, at most 20 blocks back, whose prefix was written; -1 if there is none."""
        for at in range(start, max(-1, start - LOOKBACK), -1):
            if self._entries.get(blocks[at].key, (0.0, 0))[0] > now:
                return at
        return -1

    def _use(self, key: bytes, now: float) -> None:
        expires, seconds = self._entries[key]
        self._entries[key] = (max(expires, now + seconds), seconds)


def list_blocks(body: Json) -> Iterator[Block]:
    """The blocks of the prefix in order. Raises InvalidRequest."""
    model, end = body.get("model", ""), 0
    key = hashlib.sha256(model.encode()).digest()
    items = [*list_items(body)]
    automatic = body.get("cache_control")
    for number, (place, item) in enumerate(items):
        bare = json.dumps(without_markers(item), separators=(",", ":")).encode()
        key = hashlib.sha256(key + place.encode() + bare).digest()
        end += count_tokens(item, bare)
        marker = item.get("cache_control") or (automatic if number == len(items) - 1 else None)
        if marker is not None and (
            item.get("type") in UNMARKABLE or item.get("text") == "" or item.get("defer_loading")
        ):
            raise InvalidRequest(f"cache_control cannot be set for this block: {bare[:200]!r}")
        yield Block(key, end, "" if marker is None else marker.get("ttl", "5m"))


def list_items(body: Json) -> Iterator[tuple[str, Json]]:
    """The tools and blocks in order, each with what precedes it."""
    for tool in body.get("tools", ()):
        if not tool.get("defer_loading"):
            yield "tools", tool
        elif "cache_control" in tool:
            raise InvalidRequest(f"a deferred tool cannot have cache_control: {tool['name']}")
    for block in as_blocks(body.get("system", ())):
        yield "system", block
    settings = json.dumps([body.get("thinking"), body.get("tool_choice")])
    for number, message in enumerate(body.get("messages", ())):
        for block in as_blocks(message["content"]):
            yield f"{settings} {number} {message['role']}", block


def as_blocks(content: Any) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def without_markers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_markers(inner) for name, inner in value.items() if name != "cache_control"}
    return [*map(without_markers, value)] if isinstance(value, list) else value


def count_tokens(item: Json, encoded: bytes) -> int:
    inner = item.get("content")
    images = [part for part in (inner if isinstance(inner, list) else [item]) if part.get("type") == "image"]
    pixels = sum(len(json.dumps(image.get("source"))) for image in images)
    return -(-(len(encoded) - pixels) // BYTES_PER_TOKEN) + IMAGE_TOKENS * len(images)


def check_markers(ttls: list[str]) -> None:
    """Raises InvalidRequest."""
    if len(ttls) > MAX_MARKERS:
        raise InvalidRequest(f"a maximum of {MAX_MARKERS} blocks with cache_control may be provided, found {len(ttls)}")
    if ttls != sorted(ttls):  # "1h" < "5m"
        raise InvalidRequest("a ttl='1h' cache_control block must not come after a ttl='5m' block")
