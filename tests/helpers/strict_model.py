"""A model that signs its thinking and rejects a conversation in which anything before a thinking block has changed.

    strict = StrictModel(choose)
    async with ModelServer(strict) as server: ...
    strict.rejections, strict.dropped

It follows what the Messages API documents for models with preserved thinking, and is stricter where that is vague:

- A signature is valid for the model that made the block (a twin reads it too), for the same text, and behind the same
  system prompt, tools and messages. Cache markers do not count, and a deferred tool only once a result refers to it.
- A call has its result at the start of the next message; a result has its call; nothing is empty; an answer does not
  end with thinking; an image is an image, and not too large.

A thinking block that is left out although it would be valid is `dropped`: no error, but the model has lost it.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Callable, Iterator
from hashlib import sha256
from itertools import count
from typing import Any, NamedTuple

import msgspec

from parley.errors import ModelError
from parley.models.base import ModelEvent, ModelRequest
from parley.models.event_synthesis import message_json, synthesize_events
from parley.testing.messages_api import request_error
from parley.testing.model_server import SourceAnswer

Json = dict[str, Any]
THOUGHTS = ("thinking", "redacted_thinking")
MAX_IMAGE_CHARS = 5 * 1024 * 1024
MAX_MARKERS = 4
PING_SECONDS = 0.05
ASIDE_MARKS = (b"about to be replaced by a summary", b"A reader of this conversation has a question")
"""In messages that are not part of the conversation."""
IMAGE_STARTS = {"image/png": b"\x89PNG", "image/jpeg": b"\xff\xd8\xff", "image/gif": b"GIF8", "image/webp": b"RIFF"}
TWINS = {"claude-mythos-5-2": "claude-fable-5-2"}
"""Models that read each other's thinking."""


class Reply(NamedTuple):
    """What the model answers. Blocks of type `thinking` and `redacted_thinking` are signed by the server."""

    blocks: list[Json]
    stop_reason: str | None = None
    cut_after: int | None = None
    """The connection breaks after so many events."""
    hangs: bool = False
    """Nothing comes after these events, until the client leaves."""


class Thought(NamedTuple):
    """A thinking block that the server has signed."""

    owner: str
    prefix: str
    block: Json
    before: list[Json]
    """The blocks before it in its answer."""


class StrictModel:
    """The source of a ModelServer. `choose` makes the answer to a valid request."""

    names = ("strict",)

    def __init__(self, choose: Callable[[ModelRequest], Reply]) -> None:
        self._choose = choose
        self._numbers = count(1)
        self._thoughts: dict[str, Thought] = {}
        """By signature, or by the data of a redacted block."""
        self._companions: dict[str, list[str]] = {}
        """The signatures before a text or call, in its own answer; by the key of that block."""
        self._last: dict[tuple[str, bytes], list[bytes]] = {}
        """The last request of each conversation and model, in parts."""
        self.requests = 0
        self.rejections: list[str] = []
        self.dropped: list[str] = []
        self.rewritten: list[str] = []
        """Requests that do not begin with the one before of the same conversation."""
        self.hanging: Callable[[], None] = lambda: None
        """Called when an answer hangs."""

    def answer(self, request: ModelRequest) -> SourceAnswer:
        self.requests += 1
        prefixes = Prefixes(request)
        try:
            self._check(request, prefixes)
        except ModelError as exc:
            self.rejections.append(exc.message)
            raise
        self._compare(prefixes)
        reply = self._choose(request)
        blocks = list(self._sign(prefixes, reply.blocks))
        number = next(self._numbers)
        usage = {"input_tokens": 10, "output_tokens": 10}
        message = message_json(
            blocks, id=f"msg_{number}", model=request.model, usage=usage, stop_reason=reply.stop_reason
        )
        return self._stream(message, reply), None

    async def _stream(self, message: Json, reply: Reply) -> AsyncGenerator[ModelEvent, None]:
        for number, event in enumerate(synthesize_events(message, chunk_chars=1000)):
            if number == reply.cut_after:
                if reply.hangs:
                    self.hanging()
                    while True:  # until a write fails, because the client has left
                        yield ModelEvent("ping", raw=b'{"type":"ping"}')
                        await asyncio.sleep(PING_SECONDS)
                raise ModelError("the stream is cut")
            yield event

    # Signing.

    def _sign(self, prefixes: Prefixes, blocks: list[Json]) -> Iterator[Json]:
        signed, made = list[Json](), list[str]()
        for given in blocks:
            number = next(self._numbers)
            if given["type"] in THOUGHTS:
                prefix = prefixes.digest(len(prefixes.messages), signed)
                key = f"{prefixes.owner}.{number}.{prefix[:16]}"
                block = {**given, "signature" if given["type"] == "thinking" else "data": key}
                self._thoughts[key] = Thought(prefixes.owner, prefix, block, list(signed))
                made.append(key)
            else:
                # Texts and calls are unique, so that an answer is recognised by them.
                block = given | (
                    {"text": f"{given['text']} ({number})"} if "text" in given else {"id": f"toolu_{number}"}
                )
                self._companions[block_key(block)] = list(made)
            signed.append(block)
            yield block

    # Checking.

    def _check(self, request: ModelRequest, prefixes: Prefixes) -> None:
        """Raises ModelError."""
        check_tools(request)
        check_markers(request)
        open_calls: list[str] = []
        for at, message in enumerate(prefixes.messages):
            blocks, place = message["content"], f"messages.{at}"
            require(bool(blocks), f"{place}: all messages must have non-empty content")
            if message["role"] == "user":
                check_results(place, blocks, open_calls)
                open_calls = []
            else:
                require(at > 0, f"{place}: the first message must be of the user")
                require(not open_calls, f"{place}: `tool_use` ids were found without `tool_result`: {open_calls}")
                require(blocks[-1]["type"] not in THOUGHTS, f"{place}: the final block cannot be `thinking`")
                open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
            for index, block in enumerate(blocks):
                check_block(f"{place}.content.{index}", block)
                if block["type"] in THOUGHTS:
                    self._check_thought(prefixes, at, index)
            if message["role"] == "assistant":
                self._find_dropped(prefixes, at)
        require(not open_calls, f"`tool_use` ids were found without `tool_result`: {open_calls}")
        require(prefixes.messages[-1]["role"] == "user", "the last message must be of the user")

    def _check_thought(self, prefixes: Prefixes, at: int, index: int) -> None:
        place, blocks = f"messages.{at}.content.{index}", prefixes.messages[at]["content"]
        known = self._thoughts.get(thought_key(blocks[index]))
        require(known is not None, f"{place}: Invalid `signature` in `thinking` block")
        assert known is not None
        require(blocks[index] == known.block, f"{place}: `thinking` blocks cannot be modified")
        require(known.owner == prefixes.owner, f"{place}: {prefixes.owner} cannot read the thinking of {known.owner}")
        require(
            prefixes.digest(at, blocks[:index]) == known.prefix,
            f"{place}: Invalid `signature` in `thinking` block. The block is bound to a different conversation.",
        )

    def _find_dropped(self, prefixes: Prefixes, at: int) -> None:
        """Find blocks that could have stayed in an answer."""
        blocks = prefixes.messages[at]["content"]
        present = {thought_key(block) for block in blocks if block["type"] in THOUGHTS}
        missing = dict.fromkeys(
            key for block in blocks for key in self._companions.get(block_key(block), ()) if key not in present
        )
        for known in map(self._thoughts.__getitem__, missing):
            is_valid = (
                known.owner == prefixes.owner
                and blocks[: len(known.before)] == known.before
                and prefixes.digest(at, known.before) == known.prefix
            )
            if is_valid:
                self.dropped.append(f"messages.{at}: a thinking block of {known.owner} is missing")

    def _compare(self, prefixes: Prefixes) -> None:
        """Whether the request begins with the one before of the same conversation and model."""
        flat = [encode([message["role"], block]) for message in prefixes.messages for block in message["content"]]
        if is_aside(flat[-1]):
            return
        now = [prefixes.head, *flat]
        key = (prefixes.owner, flat[0])
        before = self._last.get(key, [])
        if before != now[: len(before)]:
            self.rewritten.append("tools or system" if before[0] != now[0] else "messages")
        self._last[key] = now


class Prefixes:
    """What stands before each place of a request, without cache markers."""

    def __init__(self, request: ModelRequest) -> None:
        self.owner = find_owner(request.model)
        self.messages = [
            {"role": message["role"], "content": without_markers(list_blocks(message))} for message in request.messages
        ]
        tools = {tool["name"]: tool for tool in without_markers(request.tools)}
        plain = [tool for tool in tools.values() if not tool.get("defer_loading")]
        self.head = encode([without_markers(request.system), plain])
        self._digests = [sha256(self.head).digest()]
        for message in self.messages:
            # The API puts the definition of a deferred tool where a result refers to it.
            loaded = [tools.get(part["tool_name"]) for part in find_references(message)]
            self._digests.append(sha256(self._digests[-1] + encode([message, loaded])).digest())

    def digest(self, at: int, blocks: list[Json]) -> str:
        """Of what stands before a block: `blocks` of its own message, and the messages before `at`."""
        return sha256(self._digests[at] + encode(blocks)).hexdigest()


def is_aside(data: bytes) -> bool:
    """Whether a message, encoded, is not part of the conversation."""
    return any(mark in data for mark in ASIDE_MARKS)


def find_owner(model: str) -> str:
    return TWINS.get(model, model)


def thought_key(block: Json) -> str:
    return str(block.get("signature") or block.get("data") or "")


def encode(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


def check_tools(request: ModelRequest) -> None:
    names = [tool["name"] for tool in request.tools]
    require(len(set(names)) == len(names), f"tools: Tool names must be unique: {names}")
    for at, message in enumerate(request.messages):
        for part in find_references(message):
            require(
                part["tool_name"] in names, f"messages.{at}: Tool reference '{part['tool_name']}' not found in tools"
            )


def check_markers(request: ModelRequest) -> None:
    text = encode([request.system, request.tools, request.messages])
    require(text.count(b'"cache_control":{') <= MAX_MARKERS, "A maximum of 4 blocks with cache_control may be provided")


def check_results(place: str, blocks: list[Json], open_calls: list[str]) -> None:
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    require(sorted(results) == sorted(open_calls), f"{place}: the calls {open_calls} have the results {results}")
    kinds = [block["type"] == "tool_result" for block in blocks]
    require(kinds == sorted(kinds, reverse=True), f"{place}: `tool_result` blocks must come first")


def check_block(place: str, block: Json) -> None:
    if block["type"] == "text":
        require(bool(block["text"].strip()), f"{place}: text content blocks must be non-empty")
    elif block["type"] == "image":
        check_image(place, block["source"])
    elif block["type"] == "tool_result" and isinstance(block.get("content"), list):
        for part in block["content"]:
            check_block(place, part)


def check_image(place: str, source: Json) -> None:
    if source["type"] != "base64":
        return
    require(len(source["data"]) <= MAX_IMAGE_CHARS, f"{place}: image exceeds 5 MB maximum")
    start = base64.b64decode(source["data"][:64])
    require(start.startswith(IMAGE_STARTS[source["media_type"]]), f"{place}: Could not process image")


def find_references(message: Json) -> Iterator[Json]:
    for block in list_blocks(message):
        if block["type"] == "tool_result" and isinstance(block.get("content"), list):
            yield from (part for part in block["content"] if part["type"] == "tool_reference")


def list_blocks(message: Json) -> list[Json]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def block_key(block: Json) -> str:
    return str(block.get("id") or block.get("text"))


def without_markers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_markers(inner) for key, inner in value.items() if key != "cache_control"}
    return [without_markers(inner) for inner in value] if isinstance(value, list) else value


def require(holds: bool, text: str) -> None:
    if not holds:
        raise request_error(400, text)
