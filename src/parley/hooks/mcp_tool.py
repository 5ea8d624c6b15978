"""MCP tool hooks from settings: a tool of a connected server is called, and its result is the output.

    {"type": "mcp_tool", "server": "audit", "tool": "check", "input": {"path": "${tool_input.file_path}"}}

`${path}` in a string is replaced by that field of the hook's input. A server that is not connected, and a result that
is an error, are failures.

The output is the text of the result, or `structuredContent` if there is no text or if it has keys of an output.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import msgspec

from parley.hooks.base import HookInvocation, HookRun, HookServices, Progress
from parley.hooks.command import parse_reply
from parley.hooks.entry import HandlerHook, HookEntry
from parley.hooks.output import DECIDING, GENERAL_KEYS, HookFailed
from parley.protocol.base import Json, encode_json

FIELD = re.compile(r"\$\{([\w.-]+)\}")


class McpToolEntry(HookEntry, frozen=True, kw_only=True):
    kind: ClassVar[str] = "mcp_tool"
    server: str
    tool: str
    input: Json = {}

    @property
    def subject(self) -> str:
        return f"{self.server}/{self.tool}"

    def own_json(self) -> Json:
        return {"server": self.server, "tool": self.tool, **({"input": self.input} if self.input else {})}


class McpToolHook(HandlerHook[McpToolEntry]):
    def __init__(self, entry: McpToolEntry, services: HookServices) -> None:
        super().__init__(entry)
        self._services = services

    async def call(self, invocation: HookInvocation, progress: Progress) -> HookRun:
        entry = self.entry
        result = await self._services.call_mcp_tool(entry.server, entry.tool, fill(entry.input, invocation.input))
        text = self._read_text(result)
        output, unknown = parse_reply(invocation.event, text.encode(errors="replace"), guards=self.guards)
        return HookRun(output=output, unknown=unknown, stdout=text)

    def _read_text(self, result: Json) -> str:
        """The output in a result. Raises HookFailed if there is none, or two, and the failure of the hook blocks."""
        blocks, structured = result["content"], result.get("structuredContent")
        text = "\n".join(block["text"] for block in blocks if is_text_block(block))
        if isinstance(structured, dict) and (not text.strip() or structured.keys() & (GENERAL_KEYS | DECIDING)):
            # The text is usually a copy for clients that do not read `structuredContent`.
            if self.guards and text.strip().startswith("{") and not is_copy(text, structured):
                raise HookFailed("the text of the result and its structuredContent differ")
            return encode_json(structured).decode()
        if self.guards and (not text.strip() or not all(map(is_text_block, blocks))):
            raise HookFailed("the result must be text only, or have structuredContent")
        return text


def is_text_block(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def is_copy(text: str, structured: Json) -> bool:
    try:
        return bool(msgspec.json.decode(text) == structured)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False


def fill(template: Any, input: Json) -> Any:
    """Replace `${path}` in all strings. A string that is only one field keeps the type of the field."""
    if isinstance(template, dict):
        return {name: fill(value, input) for name, value in template.items()}
    if isinstance(template, list):
        return [fill(value, input) for value in template]
    if not isinstance(template, str):
        return template
    whole = FIELD.fullmatch(template)
    if whole is not None:
        found = find_field(input, whole[1])
        return "" if found is None else found
    return FIELD.sub(lambda match: as_text(find_field(input, match[1])), template)


def find_field(input: Any, path: str) -> Any:
    """The field at a dotted path; None if there is none."""
    for name in path.split("."):
        if isinstance(input, list) and name.isdecimal() and int(name) < len(input):
            input = input[int(name)]
        elif isinstance(input, dict):
            input = input.get(name)
        else:
            return None
    return input


def as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else encode_json(value).decode()
