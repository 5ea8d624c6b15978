"""A tool of an MCP server that answers permission questions in the place of the host.

`--permission-prompt-tool mcp__server__tool`: it is called with `tool_name`, `input` and `tool_use_id`, and
answers with a text that is JSON: `{"behavior": "allow", "updatedInput": {...}}`, or
`{"behavior": "deny", "message": "..."}`. The model is not offered it and nobody is asked about it.
Whatever goes wrong with it is a denial.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from parley.errors import ToolError
from parley.host import AnswerIsError
from parley.protocol.base import Json
from parley.protocol.duplicate_keys import find_doubled
from parley.protocol.messages.requests import CanUseTool
from parley.settings.base import shown

if TYPE_CHECKING:
    from parley.engine.mcp.manager import Servers


class PromptTool:
    def __init__(self, name: str, servers: Servers) -> None:
        self.name = name
        self._servers = servers

    async def ask(self, asked: CanUseTool, request_id: str | None = None) -> Any:
        """What the tool says. Raises AnswerIsError."""
        await self._servers.settle()
        arguments = {"tool_name": asked.tool_name, "input": asked.input, "tool_use_id": asked.tool_use_id}
        try:
            answer = await self._servers.consult(self.name, arguments)
        except ToolError as flaw:
            raise AnswerIsError(f"the tool {self.name} that answers such questions failed: {flaw}") from None
        return self._read(answer)

    def _read(self, answer: Json) -> Any:
        content = answer.get("content")
        blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
        text = "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
        if answer.get("isError") is True:
            raise AnswerIsError(f"the tool {self.name} that answers such questions failed: {shown(text)}")
        try:
            decoded = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            raise AnswerIsError(f"the tool {self.name} gave no JSON for an answer: {shown(text)!r}") from None
        if (doubled := find_doubled(text)) is not None:
            raise AnswerIsError(f"the answer of the tool {self.name} cannot be understood: {doubled}")
        return decoded
