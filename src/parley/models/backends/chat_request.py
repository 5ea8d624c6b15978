"""A request in the terms of the chat completions API. Pure.

    body(request, "gpt-5", declared)     -> the JSON object to send

One of our messages becomes one or more of theirs: results of tools stand alone there, and
images that tools gave follow in a message of the user. What a message becomes depends on
nothing but itself, so a request begins with the bytes of the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from parley.models.base import ModelRequest
from parley.models.catalog import UNKNOWN
from parley.protocol.base import Json

USAGE = "stream_options"
OPTIONAL = (USAGE, "max_tokens", "max_completion_tokens", "reasoning_effort", "reasoning_content")
"""Fields that a server may not know, and can do without."""


def body(request: ModelRequest, name: str, declared: Collection[str], dropped: Collection[str] = ()) -> Json:
    """The request's JSON."""
    fields: Json = {"model": name, "stream": True}
    if USAGE not in dropped:
        fields[USAGE] = {"include_usage": True}
    fields.update(most_tokens(request, declared, dropped))
    if request.effort is not None and "reasoning_effort" in declared and "reasoning_effort" not in dropped:
        fields["reasoning_effort"] = request.effort
    if request.output_schema is not None:
        form = {"name": "answer", "schema": request.output_schema}
        fields["response_format"] = {"type": "json_schema", "json_schema": form}
    if tools := [function(tool) for tool in request.tools if "input_schema" in tool]:
        fields["tools"] = tools
    keeps = "reasoning_content" in declared and "reasoning_content" not in dropped
    return {**fields, "messages": messages(request, keeps_reasoning=keeps)}


def most_tokens(request: ModelRequest, declared: Collection[str], dropped: Collection[str]) -> Json:
    """How long the answer may be; not said where we only guessed it for a model that we do not know."""
    if request.max_tokens == UNKNOWN.max_output_tokens:
        return {}
    # A server that does not take the one name mostly takes the other.
    names = ["max_tokens", "max_completion_tokens"]
    if "max_completion_tokens" in declared:
        names.reverse()
    return next(({name: request.max_tokens} for name in names if name not in dropped), {})


def function(tool: Json) -> Json:
    described = {"name": tool["name"], "description": tool.get("description", ""), "parameters": tool["input_schema"]}
    return {"type": "function", "function": described}


def messages(request: ModelRequest, *, keeps_reasoning: bool = False) -> list[Json]:
    """The conversation in their terms."""
    system = "\n\n".join(block["text"] for block in request.system if block.get("text"))
    found: list[Json] = [{"role": "system", "content": system}] if system else []
    for message in request.messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == "assistant":
            found += assistant(blocks, keeps_reasoning)
        else:
            found += user(blocks)
    return found


def assistant(blocks: list[Json], keeps_reasoning: bool) -> list[Json]:
    """What the model said. Blocks of another backend's own tools mean nothing here and are left out."""
    text = joined(blocks, "text", "text")
    reasoning = joined(blocks, "thinking", "thinking") if keeps_reasoning else ""
    calls = [call(block) for block in blocks if block.get("type") == "tool_use"]
    if not text and not calls:
        return []
    spoken: Json = {"role": "assistant", "content": text or None}
    if reasoning:
        spoken["reasoning_content"] = reasoning
    return [{**spoken, "tool_calls": calls} if calls else spoken]


def call(block: Json) -> Json:
    arguments = msgspec.json.encode(block["input"]).decode()
    return {"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": arguments}}


def user(blocks: list[Json]) -> list[Json]:
    """What the person and the tools said: first every result, then the rest in one message."""
    results = [block for block in blocks if block.get("type") == "tool_result"]
    parts = [part for result in results for part in pictures(result)]
    parts += [part for block in blocks if block.get("type") != "tool_result" and (part := part_of(block))]
    found = [{"role": "tool", "tool_call_id": result["tool_use_id"], "content": outcome(result)} for result in results]
    if not parts:
        return found
    if all(part["type"] == "text" for part in parts):
        # Small servers know plain texts only.
        return [*found, {"role": "user", "content": "\n\n".join(part["text"] for part in parts)}]
    return [*found, {"role": "user", "content": parts}]


def outcome(result: Json) -> str:
    """The text of a result. That it is an error has no field there, so it is said."""
    content = result.get("content") or ""
    text = content if isinstance(content, str) else "\n".join(text_of(block) for block in content)
    is_error = result.get("is_error") and not text.lower().startswith(("error", "<tool_use_error"))
    return f"Error: {text}" if is_error else text


def text_of(block: Json) -> str:
    if block.get("type") == "text":
        return str(block.get("text") or "")
    if block.get("type") in PARTS:
        return f"[{block['type']}: see the next message]"
    return msgspec.json.encode(block).decode()


def pictures(result: Json) -> list[Json]:
    """What a result shows that no text can."""
    content = result.get("content")
    shown = [part for block in content if (part := shown_of(block))] if isinstance(content, list) else []
    return [{"type": "text", "text": f"From the tool call {result['tool_use_id']}:"}, *shown] if shown else []


def shown_of(block: Json) -> Json | None:
    return part_of(block) if block.get("type") in PARTS else None


def part_of(block: Json) -> Json | None:
    """One part of a user's message; None for what there is no part for."""
    if block.get("type") == "text":
        return {"type": "text", "text": block.get("text") or ""}
    made = PARTS.get(str(block.get("type")))
    return made(block) if made is not None else None


def image(block: Json) -> Json:
    source = block["source"]
    if source.get("type") == "url":
        return {"type": "image_url", "image_url": {"url": source["url"]}}
    return {"type": "image_url", "image_url": {"url": data_url(source)}}


def document(block: Json) -> Json:
    source, title = block["source"], block.get("title") or "document"
    if source.get("type") == "text":
        return {"type": "text", "text": f"{title}:\n{source.get('data', '')}"}
    if source.get("type") == "url":
        return {"type": "text", "text": f"{title}: {source['url']}"}
    return {"type": "file", "file": {"filename": title, "file_data": data_url(source)}}


def data_url(source: Json) -> str:
    return f"data:{source.get('media_type', 'application/octet-stream')};base64,{source.get('data', '')}"


PARTS: dict[str, Callable[[Json], Json]] = {"image": image, "document": document}


def joined(blocks: list[Json], kind: str, field: str) -> str:
    return "\n".join(block[field] for block in blocks if block.get("type") == kind and block.get(field))
