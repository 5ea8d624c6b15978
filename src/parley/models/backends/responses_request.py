"""Convert a request to the Responses API. Pure.

    build_body(request, "gpt-5")     -> the JSON object to send

`build_fields` is the same with the tools and messages not converted yet, for a backend that keeps converted ones.

Nothing is stored on the server, so every request has the whole conversation, reasoning items included. The conversion
of a message depends only on that message and the model, so the prefix of a request does not change and prompt caches
stay valid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import dropwhile

from parley.models.backends.chat_request import convert_result, data_url, encode_arguments
from parley.models.backends.reasoning_items import PHASE, unpack
from parley.models.base import ModelRequest
from parley.models.catalog import UNKNOWN_MODEL, effort_for_budget
from parley.protocol.base import Json

ENCRYPTED = "reasoning.encrypted_content"
OPTIONAL = (
    ENCRYPTED,
    "include",
    "reasoning.effort",
    "reasoning.summary",
    "reasoning",
    "max_output_tokens",
    "prompt_cache_key",
    "store",
    "phase",
)
"""Optional fields that a server may not support, the longer name first."""


def build_body(request: ModelRequest, name: str, dropped: Collection[str] = ()) -> Json:
    """The request body."""
    fields = build_fields(request, name, dropped)
    if "tools" in fields:
        fields["tools"] = [converted for tool in request.tools for converted in convert_tool(tool)]
    has_phase = "phase" not in dropped
    items = (item for message in request.messages for item in convert_message(message, name, has_phase))
    return {**fields, "input": list(items)}


def build_fields(request: ModelRequest, name: str, dropped: Collection[str]) -> Json:
    """The request body, with `tools` and `input` as they are in the request."""
    fields: Json = {"model": name, "stream": True, "store": False}
    if request.session_id:
        fields["prompt_cache_key"] = request.session_id
    if request.max_tokens != UNKNOWN_MODEL.max_output_tokens:
        # Otherwise it is only our default for an unknown model.
        fields["max_output_tokens"] = request.max_tokens
    if request.thinking is not None and ENCRYPTED not in dropped:
        fields["include"] = [ENCRYPTED]
    if reasoning := {key: value for key, value in reasoning_fields(request) if f"reasoning.{key}" not in dropped}:
        fields["reasoning"] = reasoning
    if request.output_schema is not None:
        fields["text"] = {"format": {"type": "json_schema", "name": "answer", "schema": request.output_schema}}
    if system := "\n\n".join(block["text"] for block in request.system if block.get("text")):
        fields["instructions"] = system
    if any("input_schema" in tool for tool in request.tools):
        fields["tools"] = request.tools
    kept = {key: value for key, value in fields.items() if key not in dropped}
    return {**kept, "input": request.messages}


def optional_fields(fields: Json) -> Iterator[str]:
    """The optional fields that a body has."""
    reasoning = fields.get("reasoning") or {}
    sent = {*fields, *(f"reasoning.{key}" for key in reasoning), *fields.get("include", ())}
    if any("phase" in item for item in fields["input"]):
        sent.add("phase")
    yield from (name for name in OPTIONAL if name in sent)


def reasoning_fields(request: ModelRequest) -> Iterator[tuple[str, str]]:
    thinking = request.thinking or {}
    if (effort := choose_effort(request)) is not None:
        yield "effort", effort
    if thinking and thinking["type"] != "disabled" and thinking.get("display") != "omitted":
        yield "summary", "auto"


def choose_effort(request: ModelRequest) -> str | None:
    """The effort that the user asked for, as such or as a thinking budget; None for the model's default."""
    thinking = request.thinking or {}
    if thinking.get("type") == "disabled":
        return "none"
    budget = thinking.get("budget_tokens")
    if request.effort is not None or budget is None:
        return request.effort
    return effort_for_budget(budget)


def convert_tool(tool: Json) -> list[Json]:
    """A tool. Server tools of another backend are left out."""
    if "input_schema" not in tool:
        return []
    # Without `strict`, the API would make every parameter required.
    function = {"name": tool["name"], "description": tool.get("description", ""), "parameters": tool["input_schema"]}
    return [{"type": "function", **function, "strict": False}]


def convert_message(message: Json, model: str, has_phase: bool = True) -> list[Json]:
    """One message of the conversation as input items."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return convert_assistant(blocks, model, has_phase) if message["role"] == "assistant" else convert_user(blocks)


def convert_assistant(blocks: list[Json], model: str, has_phase: bool) -> list[Json]:
    """The items of an assistant message. Blocks of another backend's server tools are left out."""
    items = [item for block in blocks if (item := convert_block(block, model, has_phase)) is not None]
    # The API rejects reasoning that nothing follows.
    return list(dropwhile(lambda item: item["type"] == "reasoning", reversed(items)))[::-1]


def convert_block(block: Json, model: str, has_phase: bool) -> Json | None:
    match block.get("type"):
        case "text" if block.get("text"):
            item: Json = {"type": "message", "role": "assistant", "content": block["text"]}
            return {**item, "phase": block[PHASE]} if has_phase and block.get(PHASE) else item
        case "tool_use":
            call = {"call_id": block["id"], "name": block["name"], "arguments": encode_arguments(block)}
            return {"type": "function_call", **call}
        case "thinking" | "redacted_thinking":
            return unpack(block, model)
    return None


def convert_user(blocks: list[Json]) -> list[Json]:
    """The items of a user message: first all tool results, then the rest in one message."""
    results = [block for block in blocks if block.get("type") == "tool_result"]
    parts = [part for block in blocks if block.get("type") != "tool_result" and (part := convert_part(block))]
    items: list[Json] = [
        {"type": "function_call_output", "call_id": result["tool_use_id"], "output": convert_output(result)}
        for result in results
    ]
    return [*items, {"type": "message", "role": "user", "content": parts}] if parts else items


def convert_output(result: Json) -> str | list[Json]:
    """The output of a tool call: a text, or a list of parts if it has images or documents."""
    content = result.get("content")
    if not isinstance(content, list) or all(block.get("type") not in ("image", "document") for block in content):
        return convert_result(result)
    parts = [part for block in content if (part := convert_part(block))]
    return [{"type": "input_text", "text": "Error:"}, *parts] if result.get("is_error") else parts


def convert_part(block: Json) -> Json | None:
    """One part of a message or output; None without an equivalent."""
    match block.get("type"):
        case "text":
            return {"type": "input_text", "text": block.get("text") or ""}
        case "image":
            source = block["source"]
            url = source["url"] if source.get("type") == "url" else data_url(source)
            return {"type": "input_image", "image_url": url, "detail": "auto"}
        case "document":
            return convert_document(block)
    return None


def convert_document(block: Json) -> Json:
    source, title = block["source"], block.get("title") or "document"
    if source.get("type") == "text":
        return {"type": "input_text", "text": f"{title}:\n{source.get('data', '')}"}
    if source.get("type") == "url":
        return {"type": "input_file", "file_url": source["url"]}
    return {"type": "input_file", "filename": title, "file_data": data_url(source)}
