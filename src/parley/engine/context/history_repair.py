"""Repair a conversation that a backend rejects.

Messages are sent again byte for byte, so that one bad block would fail every later request. After a status 400,
the conversation is sent as `repair_messages` returns it:

    a call without a result           gets an error result
    a result without a call           is removed
    an empty text or message          is removed
    thinking without a signature      is removed; all thinking so far, if the error is about it
    invalid image data                becomes a text
    an image or document in the error becomes a text; all of them, if the error names none
    an id with invalid characters     gets underscores instead
    NUL in a text                     becomes U+FFFD
    two messages of one role          become one

`turn/model_call.py` decides when. An error that this does not fix is reported as it is.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Container, Iterator
from hashlib import sha256

import msgspec

from parley.protocol.base import Json, sanitize

THOUGHTS = ("thinking", "redacted_thinking")
ABOUT_THOUGHTS = ("thinking", "signature", "encrypted_content", "encrypted content", "'reasoning'")
"""Words in an error about thinking, of the Messages API and of the Responses API."""
NO_RESULT = "No result of this call was recorded."
NO_IMAGE = "[An image that could not be read was here.]"
NO_DOCUMENT = "[A document that could not be read was here.]"
PLACEHOLDERS = {"image": NO_IMAGE, "document": NO_DOCUMENT}
ERROR_PATH = re.compile(r"messages\.(\d+)\.content\.(\d+)")
"""How the API names a rejected block."""
INVALID_ID_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")
"""Not allowed in ids and names of the Messages API; other backends use ids like `functions.read:0`."""
IMAGES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"RIFF": "image/webp"}
"""The first bytes of the image types that backends accept."""


def repair_messages(messages: list[Json], refused: Container[str] = ()) -> list[Json]:
    """The messages without what a backend can reject; the same list if nothing changes.

    `refused` has the keys of images and documents that it rejected.
    """
    sound = merge_neighbours({**message, "content": list(repair_blocks(message, refused))} for message in messages)
    paired = merge_neighbours(pair_calls(sound))
    while paired and paired[0]["role"] != "user":
        del paired[0]
    return messages if paired == messages else paired


def is_about_thinking(error: str) -> bool:
    return any(word in error.lower() for word in ABOUT_THOUGHTS)


def find_blamed(messages: list[Json], error: str) -> frozenset[str]:
    """The keys of the images and documents that an error is about."""
    if not any(word in error.lower() for word in (*PLACEHOLDERS, "pdf", "media")):
        return frozenset()
    place = ERROR_PATH.search(error)
    if place is not None:
        at, within = map(int, place.groups())
        content = messages[at]["content"] if at < len(messages) else []
        if named := frozenset(
            media_key(found) for block in content[within : within + 1] for found in find_media(block)
        ):
            return named
    return frozenset(
        media_key(found) for message in messages for block in message["content"] for found in find_media(block)
    )


def find_media(block: Json) -> Iterator[Json]:
    """The images and documents in a block, itself included."""
    if block.get("type") in PLACEHOLDERS:
        yield block
    elif block.get("type") == "tool_result" and isinstance(block.get("content"), list):
        for part in block["content"]:
            yield from find_media(part)


def media_key(block: Json) -> str:
    """Identifies an image or a document."""
    return sha256(msgspec.json.encode(block.get("source"))).hexdigest()


def repair_blocks(message: Json, refused: Container[str]) -> Iterator[Json]:
    for block in message["content"]:
        kind = block.get("type")
        if kind == "text" and not (block.get("text") or "").strip():
            continue
        if kind in THOUGHTS and not (block.get("signature") or block.get("data")):
            continue
        yield block if kind in THOUGHTS else repair_block(sanitize(block), refused)


def repair_block(block: Json, refused: Container[str]) -> Json:
    """Replace invalid images, ids and names."""
    kind = block.get("type")
    if kind in PLACEHOLDERS and (
        media_key(block) in refused or (kind == "image" and not is_image(block.get("source")))
    ):
        return {"type": "text", "text": PLACEHOLDERS[kind]}
    if kind == "tool_use":
        return {
            **block,
            "id": INVALID_ID_CHARACTER.sub("_", str(block["id"])),
            "name": INVALID_ID_CHARACTER.sub("_", str(block["name"])) or "_",
        }
    if kind == "tool_result":
        block = {**block, "tool_use_id": INVALID_ID_CHARACTER.sub("_", str(block["tool_use_id"]))}
        if isinstance(block.get("content"), list):
            inner = [
                repair_block(part, refused)
                for part in block["content"]
                if part.get("type") != "text" or part.get("text")
            ]
            return {**block, "content": inner or NO_RESULT}
    return block


def find_image_problem(source: object, max_chars: int | None) -> str | None:
    """Why an image cannot be sent, by its size and first bytes; None if it can."""
    if not isinstance(source, dict) or source.get("type") != "base64":
        return None
    data = str(source.get("data") or "")
    if max_chars is not None and len(data) > max_chars:
        return f"It is too large: {len(data):,} characters in base64, the limit is {max_chars:,}."
    try:
        start = base64.b64decode(data[:16])
    except (binascii.Error, ValueError):
        start = b""
    if any(start.startswith(known) and source.get("media_type") == kind for known, kind in IMAGES.items()):
        return None
    return f"It could not be read: the data are not {source.get('media_type')}."


def is_image(source: object) -> bool:
    """Whether the data has its declared type. Images by URL are not checked."""
    if not isinstance(source, dict) or source.get("type") != "base64":
        return isinstance(source, dict)
    try:
        data = base64.b64decode(source.get("data") or "", validate=True)
    except (binascii.Error, ValueError, TypeError):
        return False
    return any(data.startswith(start) and source.get("media_type") == kind for start, kind in IMAGES.items())


def merge_neighbours(messages: Iterator[Json]) -> list[Json]:
    """Remove empty messages and join neighbours of one role."""
    found: list[Json] = []
    for message in messages:
        if not message["content"]:
            continue
        if found and found[-1]["role"] == message["role"]:
            found[-1] = {**found[-1], "content": [*found[-1]["content"], *message["content"]]}
        else:
            found.append(message)
    return found


def pair_calls(messages: list[Json]) -> Iterator[Json]:
    """Give each call exactly one result at the start of the next message."""
    waiting: list[str] = []
    called: set[str] = set()
    for message in messages:
        if message["role"] == "user":
            results = {part["tool_use_id"]: part for part in message["content"] if part.get("type") == "tool_result"}
            answers = [results.get(call) or missing_result(call) for call in waiting]
            others = [part for part in message["content"] if part.get("type") != "tool_result"]
            waiting = []
            yield {**message, "content": [*answers, *others]}
            continue
        # A second call with the same id is ambiguous.
        content = [part for part in message["content"] if part.get("type") != "tool_use" or part["id"] not in called]
        waiting = [part["id"] for part in content if part.get("type") == "tool_use"]
        called.update(waiting)
        yield {**message, "content": content}
    if waiting:
        yield {"role": "user", "content": [missing_result(call) for call in waiting]}


def missing_result(call: str) -> Json:
    return {"type": "tool_result", "tool_use_id": call, "content": NO_RESULT, "is_error": True}
