"""Read resources of an MCP server for a model. Long text and binary data are saved to files."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from pathlib import Path

from parley.engine.turn.result_spill import save, spill_text
from parley.mcp.server import McpServer
from parley.protocol.base import Json


class ResourceReader:
    """The resources of one server."""

    def __init__(self, server: McpServer, max_chars: int, new_file: Callable[[str], Path]) -> None:
        self._server = server
        self._max_chars = max_chars
        self._new_file = new_file

    async def resources(self) -> list[Json]:
        """Raises ToolError."""
        return await self._server.resources()

    async def read(self, uri: str) -> list[Json]:
        """Raises ToolError."""
        left, found = self._max_chars, []
        for item in await self._server.read(uri):
            text = item.get("text")
            if isinstance(item.get("blob"), str):
                found.append(save_to_file(item, self._new_file))
            elif isinstance(text, str) and len(text) > left:
                found.append({**item, "text": spill_text(text, self._new_file)})
            else:
                left -= len(text) if isinstance(text, str) else 0
                found.append(item)
        return found


def save_to_file(item: Json, new_file: Callable[[str], Path]) -> Json:
    """Save binary data and put the path of the file in its place."""
    try:
        data = base64.b64decode(item["blob"], validate=True)
    except (binascii.Error, ValueError):
        data = item["blob"].encode()
    path = new_file(file_suffix(str(item.get("mimeType") or "")))
    where = save(data, path)
    saved_to = str(path) if where.endswith(str(path)) else where
    return {**{key: value for key, value in item.items() if key != "blob"}, "blobSavedTo": saved_to}


def file_suffix(kind: str) -> str:
    """The file name suffix for a MIME type."""
    word = kind.rpartition("/")[2].partition("+")[0].partition(";")[0].strip()
    return word if word.isascii() and word.isalnum() else "bin"
