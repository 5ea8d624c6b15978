"""The requests and texts of which a summary is made. Pure.

A ladder, for conversations that are larger than the window they must be read in:

    all messages > those without the bodies of old results > piece by piece, as text > shortened, without a model
"""

from __future__ import annotations

import re

import msgspec

from parley.engine.context.history import size
from parley.models.catalog import CHARS_PER_TOKEN
from parley.protocol.base import Json

ASK = """\
[The conversation so far is about to be replaced by a summary of it, because the context window is filling up. Write \
that summary now, for yourself: whoever goes on has nothing else. Call no tools. Say, as exactly as you can:

1. What the person asked for, in their own words where they matter, and how that changed.
2. What was done: files read, created and changed (with their paths), commands run, and what came of them.
3. What was found out and decided, and why; errors that came up and how they were overcome.
4. What is still open, and what you were about to do next.

Leave out pleasantries and whatever no longer matters.]"""
ASK_PIECE = "[Here is part {number} of {count} of a conversation between a person and an agent that works for them.]"
LEAD = "This session goes on from an earlier conversation, which was compacted to make room. What matters of it:"
REQUEST = "The last request of the person, word for word:"
BODY_CHARS = 300
"""What is left of the body of an old result."""
MOST_REQUEST_CHARS = 8_000
TAGS = re.compile(r"</?summary>")


def instruction(instructions: str | None) -> str:
    return f"{ASK}\n\n[About this summary, the person says: {instructions}]" if instructions else ASK


def asking(messages: list[Json], words: str) -> list[Json]:
    """The messages with a last word of the user."""
    block = {"type": "text", "text": words}
    if messages and messages[-1]["role"] == "user":
        *before, last = messages
        return [*before, {**last, "content": [*last["content"], block]}]
    return [*messages, {"role": "user", "content": [block]}]


def without_bodies(messages: list[Json]) -> list[Json]:
    """The messages with results, pictures and documents cut to what they began with."""
    return [{**message, "content": [bodiless(block) for block in message["content"]]} for message in messages]


def bodiless(block: Json) -> Json:
    if block.get("type") == "tool_result":
        return {**block, "content": shortened(result_text(block), BODY_CHARS)}
    if block.get("type") in ("image", "document"):
        return {"type": "text", "text": f"[{block['type']} left out]"}
    return block


def pieces(messages: list[Json], most_tokens: int) -> list[str]:
    """The messages as texts, each with no more tokens than that."""
    text = as_text(messages)
    most_chars = max(1, int(most_tokens * CHARS_PER_TOKEN * len(text) / (size(text) or 1)))
    return [text[at : at + most_chars] for at in range(0, len(text), most_chars)]


def as_text(messages: list[Json]) -> str:
    return "\n\n".join(
        f"{message['role']}: {words}" for message in messages for words in map(block_text, message["content"]) if words
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


def shortened(text: str, most_chars: int) -> str:
    """The beginning and the end of a text, if it is longer."""
    if len(text) <= most_chars:
        return text
    half = most_chars // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[len(text) - half :]}"


def within(text: str, most_tokens: int) -> str:
    """The same for a measure in tokens."""
    return shortened(text, int(most_tokens * CHARS_PER_TOKEN * len(text) / (size(text) or 1)))


def cut(messages: list[Json], most_tokens: int) -> str:
    """What can be had without a model: how it began and how it ended."""
    return within(as_text(without_bodies(messages)), most_tokens)


def told(summary: str, request: str, date: str) -> str:
    """A summary as the model reads it."""
    parts = [LEAD, TAGS.sub("", summary).strip()]
    if request:
        parts.append(f"{REQUEST}\n{shortened(request, MOST_REQUEST_CHARS)}")
    return "\n\n".join([*parts, *([date] if date else [])])
