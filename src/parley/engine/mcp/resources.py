"""What an MCP server has to read, as a model reads it: what is too long for it, or no text, is in a file."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from pathlib import Path

from parley.engine.turn.result_spill import saved, text_in_file
from parley.mcp.server import Server
from parley.protocol.base import Json


class Library:
    """The resources of one server."""

    def __init__(self, server: Server, most_chars: int, new_file: Callable[[str], Path]) -> None:
        self._server = server
        self._most_chars = most_chars
        self._new_file = new_file

    async def resources(self) -> list[Json]:
        """Raises ToolError."""
        return await self._server.resources()

    async def read(self, uri: str) -> list[Json]:
        """Raises ToolError."""
        left, found = self._most_chars, []
        for item in await self._server.read(uri):
            text = item.get("text")
            if isinstance(item.get("blob"), str):
                found.append(in_file(item, self._new_file))
            elif isinstance(text, str) and len(text) > left:
                found.append({**item, "text": text_in_file(text, self._new_file)})
            else:
                left -= len(text) if isinstance(text, str) else 0
                found.append(item)
        return found


def in_file(item: Json, new_file: Callable[[str], Path]) -> Json:
    """Bytes say nothing to a model; the path of a file does."""
    try:
        data = base64.b64decode(item["blob"], validate=True)
    except (binascii.Error, ValueError):
        data = item["blob"].encode()
    path = new_file(ending(str(item.get("mimeType") or "")))
    where = saved(data, path)
    told = str(path) if where.endswith(str(path)) else where
    return {**{key: value for key, value in item.items() if key != "blob"}, "blobSavedTo": told}


def ending(kind: str) -> str:
    """The ending of a file of this type."""
    word = kind.rpartition("/")[2].partition("+")[0].partition(";")[0].strip()
    return word if word.isascii() and word.isalnum() else "bin"
