"""A conversation that a backend refuses, made one that it can take.

What was said once is sent again byte for byte, so that one bad block would be refused for ever.
After a 400 the conversation is looked through once, and from then on sent as `repaired` gives it:

    a call without a result           gets one that says that there is none
    a result without a call           goes
    an empty text, an empty message   goes
    a thought without a signature     goes; all of them, if it is thoughts that are complained about
    an image that is none             becomes a text that says so
    two messages of one role          become one

Not here: when it is done (exchange.py). Whatever this does not help against is told as it is.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from parley.protocol.base import Json

THOUGHTS = ("thinking", "redacted_thinking")
NO_RESULT = "There is no result of this call on record."
NO_IMAGE = "[An image stood here that could not be read.]"
IMAGES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"RIFF": "image/webp"}
"""How the images begin that backends take."""


def repaired(messages: list[Json], complaint: str = "") -> list[Json]:
    """The messages without what a backend may refuse; the same if there is nothing of the kind."""
    bare = any(word in complaint.lower() for word in ("thinking", "signature"))
    sound = merged({**message, "content": list(blocks(message, bare=bare))} for message in messages)
    paired = merged(pairs(sound))
    while paired and paired[0]["role"] != "user":
        del paired[0]
    return messages if paired == messages else paired


def blocks(message: Json, *, bare: bool) -> Iterator[Json]:
    for block in message["content"]:
        kind = block.get("type")
        if kind == "text" and not (block.get("text") or "").strip():
            continue
        if kind in THOUGHTS and (bare or not (block.get("signature") or block.get("data"))):
            continue
        yield fit(block)


def fit(block: Json) -> Json:
    """A block with images that are images."""
    if block.get("type") == "image" and not is_image(block.get("source")):
        return {"type": "text", "text": NO_IMAGE}
    if block.get("type") == "tool_result" and isinstance(block.get("content"), list):
        inner = [fit(part) for part in block["content"] if part.get("type") != "text" or part.get("text")]
        return {**block, "content": inner or NO_RESULT}
    return block


def is_image(source: object) -> bool:
    """Whether the data is of the kind that it is said to be. What is elsewhere is believed in."""
    if not isinstance(source, dict) or source.get("type") != "base64":
        return isinstance(source, dict)
    try:
        data = base64.b64decode(source.get("data") or "", validate=True)
    except (binascii.Error, ValueError, TypeError):
        return False
    return any(data.startswith(start) and source.get("media_type") == kind for start, kind in IMAGES.items())


def merged(messages: Iterator[Json]) -> list[Json]:
    """Without empty messages, and neighbours of one role as one."""
    found: list[Json] = []
    for message in messages:
        if not message["content"]:
            continue
        if found and found[-1]["role"] == message["role"]:
            found[-1] = {**found[-1], "content": [*found[-1]["content"], *message["content"]]}
        else:
            found.append(message)
    return found


def pairs(messages: list[Json]) -> Iterator[Json]:
    """Each call with its one result in the message behind it, where the results come first."""
    waiting: list[str] = []
    called: set[str] = set()
    for message in messages:
        if message["role"] == "user":
            results = {part["tool_use_id"]: part for part in message["content"] if part.get("type") == "tool_result"}
            answers = [results.get(call) or no_result(call) for call in waiting]
            said = [part for part in message["content"] if part.get("type") != "tool_result"]
            waiting = []
            yield {**message, "content": [*answers, *said]}
            continue
        # A second call of one id could not be told from the first.
        content = [part for part in message["content"] if part.get("type") != "tool_use" or part["id"] not in called]
        waiting = [part["id"] for part in content if part.get("type") == "tool_use"]
        called.update(waiting)
        yield {**message, "content": content}
    if waiting:
        yield {"role": "user", "content": [no_result(call) for call in waiting]}


def no_result(call: str) -> Json:
    return {"type": "tool_result", "tool_use_id": call, "content": NO_RESULT, "is_error": True}
