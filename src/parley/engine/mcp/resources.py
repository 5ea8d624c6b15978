"""What a model gets of the resources and results of an MCP server. Long text and binary data are saved to files."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parley.engine.turn.result_spill import spill_text
from parley.mcp.content import IMAGE_TYPES, text_block
from parley.mcp.server_connection import McpServer
from parley.protocol.base import Json
from parley.workspace.process.processes import ResultFile

BINARY_FIELDS = {"resource": "blob", "audio": "data", "image": "data"}
"""The field with base64 data, by the type of a content item."""
SUFFIXES = {"plain": "txt", "markdown": "md", "javascript": "js"}
"""File name suffixes that differ from the MIME subtype."""


class ResourceReader:
    """The resources of one server."""

    def __init__(self, server: McpServer, max_chars: int, new_file: Callable[[str], ResultFile]) -> None:
        self._server = server
        self._max_chars = max_chars
        self._new_file = new_file

    async def resources(self) -> list[Json]:
        """Raises ToolError."""
        return await self._server.resources()

    async def directory(self, uri: str) -> list[Json]:
        """Raises ToolError."""
        return await self._server.directory(uri)

    async def read(self, uri: str) -> list[Json]:
        """Raises ToolError."""
        left, found = self._max_chars, []
        for item in await self._server.read(uri):
            text = item.get("text")
            if isinstance(item.get("blob"), str):
                found.append(save_to_file(item, self._server.spec.name, self._new_file))
            elif isinstance(text, str) and len(text) > left:
                found.append({**item, "text": spill_text(text, self._new_file)})
            else:
                left -= len(text) if isinstance(text, str) else 0
                found.append(item)
        return found


def save_to_file(item: Json, server: str, new_file: Callable[[str], ResultFile]) -> Json:
    """Save binary data and put the path of the file in its place."""
    path, note = save_binary(item["blob"], item.get("mimeType"), resource_label(item, server), new_file)
    kept = {key: value for key, value in item.items() if key != "blob"}
    return {**kept, **({} if path is None else {"blobSavedTo": str(path)}), "text": note}


def save_binary_content(answer: Json, server: str, new_file: Callable[[str], ResultFile]) -> tuple[Json, list[Json]]:
    """A tool's response with its binary content saved to files, and the text blocks that name the files."""
    content, notes = answer.get("content"), []
    if not isinstance(content, list):
        return answer, []
    items: list[Any] = []
    for item in content:
        note = save_item(item, server, new_file) if isinstance(item, dict) else None
        items.append(item if note is None else note)
        notes += [] if note is None else [note]
    return ({**answer, "content": items} if notes else answer), notes


def save_item(item: Json, server: str, new_file: Callable[[str], ResultFile]) -> Json | None:
    """Save the data of a content item that no model can read; None if there is nothing to save."""
    inner = item.get("resource") if item.get("type") == "resource" else item
    if not isinstance(inner, dict) or item.get("type") not in BINARY_FIELDS:
        return None
    data, kind = inner.get(BINARY_FIELDS[item["type"]]), inner.get("mimeType")
    if not isinstance(data, str) or kind in IMAGE_TYPES or isinstance(inner.get("text"), str):
        return None
    label = resource_label(inner, server) if item["type"] == "resource" else f"{item['type'].title()} from {server}"
    return text_block(save_binary(data, kind, label, new_file)[1])


def save_binary(data: str, kind: Any, label: str, new_file: Callable[[str], ResultFile]) -> tuple[Path | None, str]:
    """Save base64 data; returns the path, or None if that failed, and a text that says where the data is."""
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        decoded = data.encode()
    kind = kind if isinstance(kind, str) and kind else "unknown type"
    file = new_file(file_suffix(kind))
    about = f"[{label}] Binary content ({kind}, {len(decoded)} bytes)"
    error = file.write(decoded)
    return (
        (file.path, f"{about} saved to {file.path}")
        if error is None
        else (None, f"{about} could not be saved: {error}")
    )


def resource_label(resource: Json, server: str) -> str:
    return f"Resource from {server} at {resource.get('uri', '')}"


def file_suffix(kind: str) -> str:
    """The file name suffix for a MIME type."""
    word = kind.rpartition("/")[2].partition("+")[0].partition(";")[0].strip()
    return SUFFIXES.get(word, word) if word.isascii() and word.isalnum() else "bin"
