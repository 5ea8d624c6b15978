"""Convert a request to the chat completions API. Pure.

    build_body(request, "gpt-5", declared)     -> the JSON object to send

`build_fields` is the same with the tools and messages not converted yet, for a backend that keeps converted ones.

One of our messages becomes one or more chat messages: tool results are separate messages, and images in tool results
follow in a user message. The conversion of a message depends only on that message, so the prefix of a request does
not change and prompt caches stay valid.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import msgspec

from parley.models.base import ModelRequest
from parley.models.catalog import UNKNOWN_MODEL
from parley.protocol.base import Json

USAGE = "stream_options"
OPTIONAL = (USAGE, "max_tokens", "max_completion_tokens", "reasoning_effort", "reasoning_content")
"""Optional fields that a server may not support."""


def build_body(request: ModelRequest, name: str, declared: Collection[str], dropped: Collection[str] = ()) -> Json:
    """The request body."""
    fields = build_fields(request, name, declared, dropped)
    keeps = keeps_reasoning(declared, dropped)
    if "tools" in fields:
        fields["tools"] = [converted for tool in request.tools for converted in convert_tool(tool)]
    messages = (converted for message in request.messages for converted in convert_message(message, keeps))
    return {**fields, "messages": [*system_messages(request), *messages]}


def build_fields(request: ModelRequest, name: str, declared: Collection[str], dropped: Collection[str]) -> Json:
    """The request body, with `tools` and `messages` as they are in the request."""
    fields: Json = {"model": name, "stream": True}
    if USAGE not in dropped:
        fields[USAGE] = {"include_usage": True}
    fields.update(max_tokens_field(request, declared, dropped))
    if request.effort is not None and "reasoning_effort" in declared and "reasoning_effort" not in dropped:
        fields["reasoning_effort"] = request.effort
    if request.output_schema is not None:
        schema = {"name": "answer", "schema": request.output_schema}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    if any("input_schema" in tool for tool in request.tools):
        fields["tools"] = request.tools
    return {**fields, "messages": request.messages}


def keeps_reasoning(declared: Collection[str], dropped: Collection[str]) -> bool:
    """Whether the server takes reasoning back."""
    return "reasoning_content" in declared and "reasoning_content" not in dropped


def max_tokens_field(request: ModelRequest, declared: Collection[str], dropped: Collection[str]) -> Json:
    """The limit of output tokens; omitted if it is only our default for an unknown model."""
    if request.max_tokens == UNKNOWN_MODEL.max_output_tokens:
        return {}
    # A server that rejects one name usually accepts the other.
    names = ["max_tokens", "max_completion_tokens"]
    if "max_completion_tokens" in declared:
        names.reverse()
    return next(({name: request.max_tokens} for name in names if name not in dropped), {})


def convert_tool(tool: Json) -> list[Json]:
    """A tool. Server tools of another backend are left out."""
    if "input_schema" not in tool:
        return []
    function = {"name": tool["name"], "description": tool.get("description", ""), "parameters": tool["input_schema"]}
    return [{"type": "function", "function": function}]


def system_messages(request: ModelRequest) -> list[Json]:
    """The messages before the conversation."""
    system = "\n\n".join(block["text"] for block in request.system if block.get("text"))
    return [{"role": "system", "content": system}] if system else []


def convert_message(message: Json, keeps_reasoning: bool = False) -> list[Json]:
    """One message of the conversation as chat messages."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return convert_assistant(blocks, keeps_reasoning) if message["role"] == "assistant" else convert_user(blocks)


def collect_call_ids(message: Json) -> Iterator[str]:
    """The ids of the tool calls in a message."""
    content = message["content"]
    for block in content if isinstance(content, list) else ():
        if block.get("type") == "tool_use":
            yield block["id"]


def convert_assistant(blocks: list[Json], keeps_reasoning: bool) -> list[Json]:
    """An assistant message. Blocks of another backend's server tools are left out."""
    text = join_texts(blocks, "text", "text")
    reasoning = join_texts(blocks, "thinking", "thinking") if keeps_reasoning else ""
    calls = [convert_call(block) for block in blocks if block.get("type") == "tool_use"]
    if not text and not calls:
        return []
    # Some servers reject `null` beside calls; all accept an empty text.
    converted: Json = {"role": "assistant", "content": text}
    if reasoning:
        converted["reasoning_content"] = reasoning
    return [{**converted, "tool_calls": calls} if calls else converted]


def convert_call(block: Json) -> Json:
    function = {"name": block["name"], "arguments": encode_arguments(block)}
    return {"id": block["id"], "type": "function", "function": function}


def encode_arguments(block: Json) -> str:
    """The arguments of a call as the JSON text that the API expects."""
    return msgspec.json.encode(block["input"]).decode()


def convert_user(blocks: list[Json]) -> list[Json]:
    """A user message: first all tool results, then the rest in one message."""
    results = [block for block in blocks if block.get("type") == "tool_result"]
    parts = [part for result in results for part in collect_images(result)]
    parts += [part for block in blocks if block.get("type") != "tool_result" and (part := convert_part(block))]
    found = [
        {"role": "tool", "tool_call_id": result["tool_use_id"], "content": convert_result(result)} for result in results
    ]
    if not parts:
        return found
    if all(part["type"] == "text" for part in parts):
        # Small servers support only plain text.
        return [*found, {"role": "user", "content": "\n\n".join(part["text"] for part in parts)}]
    return [*found, {"role": "user", "content": parts}]


def convert_result(result: Json) -> str:
    """The text of a tool result. Errors get a prefix, because there is no field for them."""
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


def collect_images(result: Json) -> list[Json]:
    """Images and documents in a tool result."""
    content = result.get("content")
    shown = [part for block in content if (part := describe_block(block))] if isinstance(content, list) else []
    return [{"type": "text", "text": f"From the tool call {result['tool_use_id']}:"}, *shown] if shown else []


def describe_block(block: Json) -> Json | None:
    return convert_part(block) if block.get("type") in PARTS else None


def convert_part(block: Json) -> Json | None:
    """One part of a user message; None without an equivalent."""
    if block.get("type") == "text":
        return {"type": "text", "text": block.get("text") or ""}
    convert = PARTS.get(str(block.get("type")))
    return convert(block) if convert is not None else None


def convert_image(block: Json) -> Json:
    source = block["source"]
    if source.get("type") == "url":
        return {"type": "image_url", "image_url": {"url": source["url"]}}
    return {"type": "image_url", "image_url": {"url": data_url(source)}}


def convert_document(block: Json) -> Json:
    source, title = block["source"], block.get("title") or "document"
    if source.get("type") == "text":
        return {"type": "text", "text": f"{title}:\n{source.get('data', '')}"}
    if source.get("type") == "url":
        return {"type": "text", "text": f"{title}: {source['url']}"}
    return {"type": "file", "file": {"filename": title, "file_data": data_url(source)}}


def data_url(source: Json) -> str:
    return f"data:{source.get('media_type', 'application/octet-stream')};base64,{source.get('data', '')}"


PARTS: dict[str, Callable[[Json], Json]] = {"image": convert_image, "document": convert_document}


def join_texts(blocks: list[Json], kind: str, field: str) -> str:
    return "\n".join(block[field] for block in blocks if block.get("type") == kind and block.get(field))
