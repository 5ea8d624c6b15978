"""What an MCP server gives, as a model reads it: pure.

Text, pictures and resources become blocks of the model API; structured content becomes its
JSON. What could deceive a reader (control characters, hidden letters, turned directions) is
taken out: a server is not trusted with the terminal, nor with what a person does not see.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from parley.protocol.base import Json, encode_json
from parley.tools.base import ToolOutput

HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # controls
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""What is not seen: zero-width characters, marks of direction, fillers, variation selectors, tags."""
STRAY = re.compile(
    "(?<![\x80-\u200b\u200e-\U0010ffff])[\u200c\u200d]|[\u200c\u200d](?![\x80-\u200b\u200e-\U0010ffff])"
    "|(?<![#*0-9\x80-\u200b\u200e-\ufe0d\ufe10-\U0010ffff])[\ufe0e\ufe0f]"
)
"""Joiners and emoji selectors where they do nothing; beside letters that are not ASCII, writing needs them."""
ESCAPES = re.compile("\x1b(\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]{0,1000}(\x07|\x1b\\\\)|[@-Z\\\\^_])")
MAX_DEPTH = 64
"""Of a schema that is looked into."""
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What the model API can look at."""


def clean(text: str) -> str:
    """A text of a server without what does not belong into one."""
    return STRAY.sub("", HIDDEN.sub("", ESCAPES.sub("", text)))


def reveal(text: str) -> str:
    """A text for a person to decide by, with what is not seen in it spelled out: a path must stay the one it is."""
    return STRAY.sub(escape_match, HIDDEN.sub(escape_match, text))


def escape_match(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def clean_schema(schema: Any, depth: int = 0) -> Any:
    """A schema with its descriptions and titles cleaned; what is matched or sent back stays as it is."""
    if depth > MAX_DEPTH:
        return schema
    if isinstance(schema, dict):
        return {
            key: clean(inner)
            if key in ("title", "description") and isinstance(inner, str)
            else clean_schema(inner, depth + 1)
            for key, inner in schema.items()
        }
    return [clean_schema(inner, depth + 1) for inner in schema] if isinstance(schema, list) else schema


def clean_value(value: Any) -> Any:
    """The same for everything within a value."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(key): clean_value(inner) for key, inner in value.items()}
    return [clean_value(inner) for inner in value] if isinstance(value, list) else value


def convert_result(answer: Json) -> ToolOutput:
    """A tool's answer as a result: what the model reads, and the same for the host."""
    content = answer.get("content")
    blocks = [convert_block(item) for item in content if isinstance(item, dict)] if isinstance(content, list) else []
    if answer.get("isError") is True:
        text = text_of(blocks) or "The tool failed and did not say why."
        return ToolOutput(content=text, detail=f"Error: {text}", is_error=True)
    structured = clean_value(answer.get("structuredContent"))
    if structured is not None and all(block["type"] == "text" for block in blocks):
        text = encode_json(structured).decode()
        return ToolOutput(content=text, detail={"content": text, "structuredContent": structured})
    if not blocks:
        return ToolOutput(content="(the tool gave nothing)", detail=[])
    return ToolOutput(content=blocks, detail=blocks)


def text_of(blocks: list[Json]) -> str:
    return "\n".join(block["text"] for block in blocks if block["type"] == "text")


def convert_block(item: Json) -> Json:
    make = BLOCKS.get(str(item.get("type")))
    return text_block(f"[content of the unknown type {item.get('type')!a}]") if make is None else make(item)


def text_block(text: str) -> Json:
    return {"type": "text", "text": clean(text)}


def convert_image(item: Json) -> Json:
    return decode_data(item.get("data"), item.get("mimeType"), "picture")


def convert_audio(item: Json) -> Json:
    return decode_data(item.get("data"), item.get("mimeType"), "sound")


def decode_data(data: Any, kind: Any, what: str) -> Json:
    """Base64: a picture where the model can see it, else what it would be."""
    if isinstance(kind, str) and kind in IMAGE_TYPES and isinstance(data, str):
        return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
    size = len(data) * 3 // 4 if isinstance(data, str) else 0
    return text_block(f"[{what} of the type {kind or 'unknown'}, about {size} bytes, which cannot be shown]")


def convert_resource(item: Json) -> Json:
    inner = item.get("resource")
    inner = inner if isinstance(inner, dict) else {}
    uri = inner.get("uri", "")
    if isinstance(inner.get("text"), str):
        return text_block(f"[Resource {uri}]\n{inner['text']}")
    return decode_data(inner.get("blob"), inner.get("mimeType"), f"resource {uri}")


def convert_link(item: Json) -> Json:
    about = "".join(f": {item[key]}" for key in ("title", "description") if isinstance(item.get(key), str))
    return text_block(f"[Link to the resource {item.get('name', '')} at {item.get('uri', '')}{about}]")


BLOCKS: dict[str, Callable[[Json], Json]] = {
    "text": lambda item: text_block(str(item.get("text", ""))),
    "image": convert_image,
    "audio": convert_audio,
    "resource": convert_resource,
    "resource_link": convert_link,
}


def convert_messages(answer: Json) -> list[Json]:
    """A prompt of a server as content of a prompt of ours; who says what is marked where it is not the user."""
    blocks: list[Json] = []
    messages = answer.get("messages")
    for message in messages if isinstance(messages, list) else []:
        content = message.get("content") if isinstance(message, dict) else None
        items = content if isinstance(content, list) else [content]
        made = [convert_block(item) for item in items if isinstance(item, dict)]
        if made and message.get("role") == "assistant":
            blocks.append(text_block("[The assistant:]"))
        blocks += made
    return blocks
