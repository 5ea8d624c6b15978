"""Convert what an MCP server returns into model API blocks. Pure.

Text, images and resources become blocks; structured content becomes its JSON. Control characters, invisible
characters and direction marks are removed, because servers are not trusted: such text could deceive a reader or
control the terminal. The names of tools and prompts become `mcp__server__tool`, in characters that every model API
accepts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from parley.mcp.base import PREFIX
from parley.protocol.base import Json, encode_json

if TYPE_CHECKING:
    from parley.tools.base import ToolOutput


HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # control characters
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Invisible characters: zero-width characters, direction marks, fillers, variation selectors, tags."""
STRAY = re.compile(
    "(?<![\x80-\u200b\u200e-\U0010ffff])[\u200c\u200d]|[\u200c\u200d](?![\x80-\u200b\u200e-\U0010ffff])"
    "|(?<![#*0-9\x80-\u200b\u200e-\ufe0d\ufe10-\U0010ffff])[\ufe0e\ufe0f]"
)
"""Joiners and emoji selectors without effect. Next to non-ASCII letters they are needed."""
ESCAPES = re.compile("\x1b(\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]{0,1000}(\x07|\x1b\\\\)|[@-Z\\\\^_])")
MAX_DEPTH = 64
"""The depth to which schemas are cleaned."""
LEFT_OUT_KEY = "parley/leftOut"
"""Why a listed tool cannot be called, in its `_meta`."""
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Image types that the model API accepts."""
MAX_NAME_CHARS = 128
"""The model API's limit for tool names."""


def clean(text: str) -> str:
    """The text without escape sequences and invisible characters."""
    return STRAY.sub("", HIDDEN.sub("", ESCAPES.sub("", text)))


def reveal(text: str) -> str:
    """The text with invisible characters escaped, for a user's decision: a path must not change."""
    return STRAY.sub(escape_match, HIDDEN.sub(escape_match, text))


def escape_match(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def clean_schema(schema: Any, depth: int = 0) -> Any:
    """A schema with cleaned descriptions and titles. Values that are matched or sent back are unchanged."""
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
    """Clean all strings in a JSON value."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(key): clean_value(inner) for key, inner in value.items()}
    return [clean_value(inner) for inner in value] if isinstance(value, list) else value


def convert_result(answer: Json) -> ToolOutput:
    """A tool's response as output for the model and the client."""
    from parley.tools.base import ToolOutput  # the terminal needs only the cleaning of text, at once

    content = answer.get("content")
    blocks = [convert_block(item) for item in content if isinstance(item, dict)] if isinstance(content, list) else []
    if answer.get("isError") is True:
        text = text_of(blocks) or "The tool failed without an error message."
        return ToolOutput(content=text, detail=f"Error: {text}", is_error=True)
    structured = clean_value(answer.get("structuredContent"))
    if structured is not None and all(block["type"] == "text" for block in blocks):
        text = encode_json(structured).decode()
        return ToolOutput(content=text, detail={"content": text, "structuredContent": structured})
    if not blocks:
        return ToolOutput(content="(the tool returned no content)", detail=[])
    return ToolOutput(content=blocks, detail=blocks)


def text_of(blocks: list[Json]) -> str:
    return "\n".join(block["text"] for block in blocks if block["type"] == "text")


def convert_block(item: Json) -> Json:
    convert = BLOCKS.get(str(item.get("type")))
    return text_block(f"[content of unknown type {item.get('type')!a}]") if convert is None else convert(item)


def text_block(text: str) -> Json:
    return {"type": "text", "text": clean(text)}


def convert_image(item: Json) -> Json:
    return decode_data(item.get("data"), item.get("mimeType"), "image")


def convert_audio(item: Json) -> Json:
    return decode_data(item.get("data"), item.get("mimeType"), "audio")


def decode_data(data: Any, kind: Any, what: str) -> Json:
    """An image block, or a text that describes data which cannot be shown."""
    if isinstance(kind, str) and kind in IMAGE_TYPES and isinstance(data, str):
        return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
    size = len(data) * 3 // 4 if isinstance(data, str) else 0
    return text_block(f"[{what} of type {kind or 'unknown'}, about {size} bytes, cannot be shown]")


def convert_resource(item: Json) -> Json:
    inner = item.get("resource")
    inner = inner if isinstance(inner, dict) else {}
    uri = inner.get("uri", "")
    if isinstance(inner.get("text"), str):
        return text_block(f"[Resource {uri}]\n{inner['text']}")
    return decode_data(inner.get("blob"), inner.get("mimeType"), f"resource {uri}")


def convert_link(item: Json) -> Json:
    about = "".join(f": {item[key]}" for key in ("title", "description") if isinstance(item.get(key), str))
    return text_block(f"[Link to resource {item.get('name', '')} at {item.get('uri', '')}{about}]")


BLOCKS: dict[str, Callable[[Json], Json]] = {
    "text": lambda item: text_block(str(item.get("text", ""))),
    "image": convert_image,
    "audio": convert_audio,
    "resource": convert_resource,
    "resource_link": convert_link,
}


def convert_messages(answer: Json) -> list[Json]:
    """The messages of a server prompt as blocks. Assistant messages are marked."""
    blocks: list[Json] = []
    messages = answer.get("messages")
    for message in messages if isinstance(messages, list) else []:
        content = message.get("content") if isinstance(message, dict) else None
        items = content if isinstance(content, list) else [content]
        converted = [convert_block(item) for item in items if isinstance(item, dict)]
        if converted and message.get("role") == "assistant":
            blocks.append(text_block("[The assistant:]"))
        blocks += converted
    return blocks


def normalize(name: str) -> str:
    """Replace all characters except letters, digits, `_` and `-` by `_`."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)


def qualify(server: str, name: str) -> str:
    """The full name of a server's tool or prompt."""
    return f"{PREFIX}{normalize(server)}__{normalize(name)}"


def title(name: str) -> str:
    """A display name: `send_mail` becomes `Send mail`."""
    words = re.sub(r"[_-]+", " ", name).strip()
    return words[:1].upper() + words[1:] if words else name


def is_denied(server: str, name: str, patterns: Iterable[str]) -> bool:
    """Whether a pattern denies a tool: its full name, its server's name, or a glob."""
    own = (name, f"{PREFIX}{normalize(server)}")
    return any(normalize(pattern) in own or fnmatchcase(name, pattern) for pattern in patterns)


def find_clash(server: str, others: Iterable[str]) -> str | None:
    """The other server whose tool names could be confused with this one's.

    `a.b` and `a_b` get the same prefix, and so do the tool `b__c` of `a` and the tool `c` of `a__b`.
    """
    own = qualify(server, "")
    return next((other for other in others if clashes(own, qualify(other, ""))), None)


def clashes(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def clash_reason(server: str, other: str) -> str:
    """Why a server with a clashing name is rejected."""
    return (
        f"its tool names would clash with those of the server {other!r:.100} (prefixes "
        f"{qualify(server, '')} and {qualify(other, '')}); rename one of the two servers"
    )
