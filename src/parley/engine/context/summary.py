"""The requests and texts for summaries. Pure functions.

A conversation can be larger than the window that must summarize it, so there are fallbacks:

    all messages > without the bodies of results > piece by piece, as text > shortened, without a model
"""

from __future__ import annotations

import re

import msgspec

from parley.engine.context.history import THOUGHTS, text_size
from parley.models.catalog import CHARS_PER_TOKEN
from parley.protocol.base import Json

SUMMARY_REQUEST = """\
[The conversation so far is about to be replaced by a summary of it, because the context window is filling up. Write \
that summary now, for yourself: nothing else is left to continue from. Call no tools. Say, as exactly as you can:

1. What the person asked for, in their own words where they matter, and how that changed.
2. What was done: files read, created and changed (with their paths), commands run, and what came of them.
3. What was found out and decided, and why; errors that came up and how they were overcome.
4. What is still open, and what you were about to do next.

Leave out pleasantries and whatever no longer matters.]"""
PIECE_REQUEST = (
    "[Here is part {number} of {count} of a conversation between a person and an agent that works for them.]"
)
SUMMARY_INTRO = (
    "This session continues from an earlier conversation, which was compacted to make room. What matters of it:"
)
LAST_REQUEST = "The last request of the person, word for word:"
BODY_CHARS = 300
"""What is left of the body of a result."""
MAX_REQUEST_CHARS = 8_000
TAGS = re.compile(r"</?summary>")


def instruction(instructions: str | None) -> str:
    return (
        f"{SUMMARY_REQUEST}\n\n[About this summary, the person says: {instructions}]"
        if instructions
        else SUMMARY_REQUEST
    )


def with_request(messages: list[Json], request: str) -> list[Json]:
    """Append a request of the user."""
    block = {"type": "text", "text": request}
    if messages and messages[-1]["role"] == "user":
        *before, last = messages
        return [*before, {**last, "content": [*last["content"], block]}]
    return [*messages, {"role": "user", "content": [block]}]


def strip_bodies(messages: list[Json]) -> list[Json]:
    """Cut results, and replace images and documents. Without thinking, which is bound to what stood before it."""
    return [
        {**message, "content": [strip_body(block) for block in message["content"] if block.get("type") not in THOUGHTS]}
        for message in messages
    ]


def strip_body(block: Json) -> Json:
    if block.get("type") == "tool_result":
        return {**block, "content": shorten_text(result_text(block), BODY_CHARS)}
    if block.get("type") in ("image", "document"):
        return {"type": "text", "text": f"[{block['type']} left out]"}
    return block


def split_text(messages: list[Json], max_tokens: int) -> list[str]:
    """The messages as texts of limited length."""
    text = to_text(messages)
    max_chars = max(1, int(max_tokens * CHARS_PER_TOKEN * len(text) / (text_size(text) or 1)))
    return [text[at : at + max_chars] for at in range(0, len(text), max_chars)]


def to_text(messages: list[Json]) -> str:
    return "\n\n".join(
        f"{message['role']}: {text}" for message in messages for text in map(block_text, message["content"]) if text
    )


def block_text(block: Json) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text") or "")
        case "tool_use":
            return f"[calls {block.get('name')} with {msgspec.json.encode(block.get('input')).decode()}]"
        case "tool_result":
            return f"[result: {result_text(block)}]"
        case "thinking" | "redacted_thinking":
            return ""
        case kind:
            return f"[{kind}]"


def result_text(block: Json) -> str:
    content = block.get("content")
    if isinstance(content, str) or content is None:
        return content or ""
    return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in content)


def shorten_text(text: str, max_chars: int) -> str:
    """Keep the beginning and the end of a long text."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[len(text) - half :]}"


def shorten_to_tokens(text: str, max_tokens: int) -> str:
    """Shorten a text to a number of tokens."""
    return shorten_text(text, int(max_tokens * CHARS_PER_TOKEN * len(text) / (text_size(text) or 1)))


def cut_to_tokens(messages: list[Json], max_tokens: int) -> str:
    """A replacement for a summary without a model: the beginning and the end."""
    return shorten_to_tokens(to_text(strip_bodies(messages)), max_tokens)


def format_summary(summary: str, request: str, date: str) -> str:
    """The summary as the model reads it."""
    parts = [SUMMARY_INTRO, TAGS.sub("", summary).strip()]
    if request:
        parts.append(f"{LAST_REQUEST}\n{shorten_text(request, MAX_REQUEST_CHARS)}")
    return "\n\n".join([*parts, *([date] if date else [])])
