"""An MCP tool that answers permission requests instead of the client (`--permission-prompt-tool mcp__server__tool`).

It is called with `tool_name`, `input` and `tool_use_id`, and returns a text that is JSON:
`{"behavior": "allow", "updatedInput": {...}}` or `{"behavior": "deny", "message": "..."}`. The model cannot call it,
and it needs no permission itself. If it fails, the call is denied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from parley.errors import ToolError
from parley.host import HostError
from parley.protocol.base import Json, find_duplicate_key
from parley.protocol.messages.requests import CanUseTool
from parley.settings.base import printable

if TYPE_CHECKING:
    from parley.engine.mcp.manager import ServerManager


class PromptTool:
    def __init__(self, name: str, servers: ServerManager) -> None:
        self.name = name
        self._servers = servers

    async def request(self, asked: CanUseTool, request_id: str | None = None) -> Any:
        """The reply of the tool. Raises HostError."""
        await self._servers.wait_ready()
        arguments = {"tool_name": asked.tool_name, "input": asked.input, "tool_use_id": asked.tool_use_id}
        try:
            answer = await self._servers.call_hidden_tool(self.name, arguments)
        except ToolError as exc:
            raise HostError(f"the tool {self.name} that answers permission requests failed: {exc}") from None
        return self._read(answer)

    def _read(self, answer: Json) -> Any:
        content = answer.get("content")
        blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
        text = "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
        if answer.get("isError") is True:
            raise HostError(f"the tool {self.name} that answers permission requests failed: {printable(text)}")
        try:
            decoded = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            raise HostError(f"the tool {self.name} returned an answer that is not JSON: {printable(text)!r}") from None
        if (doubled := find_duplicate_key(text)) is not None:
            raise HostError(f"the answer of the tool {self.name} is ambiguous: {doubled}")
        return decoded
