"""A conversation that a backend refuses, made one that it can take.

What was said once is sent again byte for byte, so that one bad block would be refused for ever.
After a 400 the conversation is looked through once, and from then on sent as `repaired` gives it:

    a call without a result           gets one that says that there is none
    a result without a call           goes
    an empty text, an empty message   goes
    a thought without a signature     goes; all of them, if it is thoughts that are complained about
    an image that is none             becomes a text that says so
    one that is complained about      the same, documents as well; all of them, if the complaint names none
    an id that the API does not know  is spelled with its letters
    NUL in a text                     becomes U+FFFD
    two messages of one role          become one

Not here: when it is done (turn/model_call.py). Whatever this does not help against is told as it is.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Container, Iterator
from hashlib import sha256

import msgspec

from parley.engine.text import sanitized
from parley.protocol.base import Json

THOUGHTS = ("thinking", "redacted_thinking")
NO_RESULT = "There is no result of this call on record."
NO_IMAGE = "[An image stood here that could not be read.]"
NO_DOCUMENT = "[A document stood here that could not be read.]"
INSTEAD = {"image": NO_IMAGE, "document": NO_DOCUMENT}
PLACE = re.compile(r"messages\.(\d+)\.content\.(\d+)")
"""How the API names a block that it refuses."""
ODD = re.compile(r"[^a-zA-Z0-9_-]")
"""What is in no id and no name, as the Messages API has them; others give calls ids like `functions.read:0`."""
IMAGES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"RIFF": "image/webp"}
"""How the images begin that backends take."""


def repaired(messages: list[Json], complaint: str = "", refused: Container[str] = ()) -> list[Json]:
    """The messages without what a backend may refuse; the same if there is nothing of the kind.

    `refused` are the keys of images and documents that it did refuse.
    """
    bare = any(word in complaint.lower() for word in ("thinking", "signature"))
    sound = merged({**message, "content": list(blocks(message, refused, bare=bare))} for message in messages)
    paired = merged(pairs(sound))
    while paired and paired[0]["role"] != "user":
        del paired[0]
    return messages if paired == messages else paired


def blamed(messages: list[Json], complaint: str) -> frozenset[str]:
    """The keys of the images and documents that a complaint is about."""
    if not any(word in complaint.lower() for word in (*INSTEAD, "pdf", "media")):
        return frozenset()
    place = PLACE.search(complaint)
    if place is not None:
        at, within = map(int, place.groups())
        content = messages[at]["content"] if at < len(messages) else []
        if named := frozenset(key(found) for block in content[within : within + 1] for found in media_in(block)):
            return named
    return frozenset(key(found) for message in messages for block in message["content"] for found in media_in(block))


def media_in(block: Json) -> Iterator[Json]:
    """The images and documents that a block is, or has in it."""
    if block.get("type") in INSTEAD:
        yield block
    elif block.get("type") == "tool_result" and isinstance(block.get("content"), list):
        for part in block["content"]:
            yield from media_in(part)


def key(block: Json) -> str:
    """What tells an image or a document from others."""
    return sha256(msgspec.json.encode(block.get("source"))).hexdigest()


def blocks(message: Json, refused: Container[str], *, bare: bool) -> Iterator[Json]:
    for block in message["content"]:
        kind = block.get("type")
        if kind == "text" and not (block.get("text") or "").strip():
            continue
        if kind in THOUGHTS and (bare or not (block.get("signature") or block.get("data"))):
            continue
        yield block if kind in THOUGHTS else fit(sanitized(block), refused)


def fit(block: Json, refused: Container[str]) -> Json:
    """A block with images that are images, and with names that are names."""
    kind = block.get("type")
    if kind in INSTEAD and (key(block) in refused or (kind == "image" and not is_image(block.get("source")))):
        return {"type": "text", "text": INSTEAD[kind]}
    if kind == "tool_use":
        return {**block, "id": ODD.sub("_", str(block["id"])), "name": ODD.sub("_", str(block["name"])) or "_"}
    if kind == "tool_result":
        block = {**block, "tool_use_id": ODD.sub("_", str(block["tool_use_id"]))}
        if isinstance(block.get("content"), list):
            inner = [fit(part, refused) for part in block["content"] if part.get("type") != "text" or part.get("text")]
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
