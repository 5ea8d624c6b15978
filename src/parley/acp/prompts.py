"""Convert what an editor sends with a new session or a prompt to what the engine takes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from parley.acp.schema import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    PromptContent,
    RemoteServer,
    ResourceContents,
    ResourceLink,
    StdioServer,
    SystemPrompt,
    TextContent,
)
from parley.jsonrpc import INVALID_PARAMS, RpcError
from parley.protocol.base import Json

IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
PDF = "application/pdf"
SYSTEM_PROMPT_OPTIONS = {"append": "append_system_prompt", "override": "system_prompt"}


def convert_prompt(content: Sequence[PromptContent]) -> str | list[Json]:
    """The content of a user message. Raises RpcError.

    Text, links and texts of files are joined, so that a command such as `/review` keeps its arguments.
    """
    blocks: list[Json] = []
    for each in content:
        block = convert_content(each)
        if blocks and block["type"] == "text" == blocks[-1]["type"]:
            blocks[-1]["text"] += block["text"]
        else:
            blocks.append(block)
    if not blocks:
        raise RpcError(INVALID_PARAMS, "session/prompt: the prompt is empty")
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        text: str = blocks[0]["text"]
        return text
    return blocks


def convert_content(content: PromptContent) -> Json:
    """Raises RpcError."""
    match content:
        case TextContent(text=text):
            return {"type": "text", "text": text}
        case ImageContent(data=data, mime_type=mime):
            return convert_image(data, mime)
        case ResourceLink(name=name, uri=uri):
            return {"type": "text", "text": f"[@{name}]({uri})"}
        case EmbeddedResource(resource=resource):
            return convert_resource(resource)
        case AudioContent():
            raise RpcError(INVALID_PARAMS, "session/prompt: audio is not supported; send text or images")


def convert_image(data: str, mime: str) -> Json:
    if mime not in IMAGE_TYPES:
        raise RpcError(INVALID_PARAMS, f"session/prompt: unknown image type {mime!r} (choose from {IMAGE_TYPES})")
    return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}}


def convert_resource(resource: ResourceContents) -> Json:
    if resource.text is not None:
        return {"type": "text", "text": f'\n<context ref="{resource.uri}">\n{resource.text}\n</context>\n'}
    mime, data = resource.mime_type or "", resource.blob
    if data is None:
        raise RpcError(
            INVALID_PARAMS, f"session/prompt: the resource {resource.uri} has neither the field `text` nor `blob`"
        )
    if mime == PDF:
        return {"type": "document", "source": {"type": "base64", "media_type": mime, "data": data}}
    if mime in IMAGE_TYPES:
        return convert_image(data, mime)
    raise RpcError(
        INVALID_PARAMS,
        f"session/prompt: the resource {resource.uri} has the type {mime or 'unknown'!r}; "
        "text, images and PDF files are supported",
    )


def convert_servers(servers: Sequence[Json] | None) -> Json:
    """The MCP servers of an editor by name, as `--mcp-config` takes them. Raises RpcError."""
    return dict(map(convert_server, servers or ()))


def convert_server(given: Json) -> tuple[str, Json]:
    kind = given.get("type", "stdio")
    if kind not in ("stdio", "http", "sse"):
        raise RpcError(INVALID_PARAMS, f"mcpServers: unknown type {kind!r} (choose from stdio, http, sse)")
    try:
        if kind == "stdio":
            program = msgspec.convert(given, StdioServer)
            env = {each.name: each.value for each in program.env}
            return program.name, {"type": kind, "command": program.command, "args": program.args, "env": env}
        server = msgspec.convert(given, RemoteServer)
    except msgspec.ValidationError as exc:
        raise RpcError(INVALID_PARAMS, f"mcpServers: {exc}") from None
    return server.name, {
        "type": kind,
        "url": server.url,
        "headers": {each.name: each.value for each in server.headers},
    }


def convert_system_prompt(given: SystemPrompt, appended: str | None = None) -> Json:
    """The option of a session that a system prompt sets. Raises RpcError.

    `appended`: what is appended to the system prompt in any case.
    """
    if given.mode not in SYSTEM_PROMPT_OPTIONS:
        choices = ", ".join(SYSTEM_PROMPT_OPTIONS)
        raise RpcError(INVALID_PARAMS, f"systemPrompt: unknown mode {given.mode!r:.50} (choose from {choices})")
    texts = [block["text"] for block in given.content if block.get("type") == "text" and "text" in block]
    if not texts or len(texts) != len(given.content) or not all(isinstance(text, str) for text in texts):
        raise RpcError(INVALID_PARAMS, "systemPrompt: the content must be one or more blocks of text")
    if given.mode == "append" and appended:
        texts.insert(0, appended)
    return {SYSTEM_PROMPT_OPTIONS[given.mode]: "\n\n".join(texts)}
