"""MCP tool hooks from settings: a tool of a connected server is called, and its text is the output.

    {"type": "mcp_tool", "server": "audit", "tool": "check", "input": {"path": "${tool_input.file_path}"}}

`${path}` in a string is replaced by that field of the hook's input. A server that is not connected, and a result that
is an error, are failures.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from parley.hooks.base import HookInvocation, HookRun, HookServices, Progress
from parley.hooks.command import parse_stdout
from parley.hooks.entry import HandlerHook, HookEntry
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
        text = await self._services.call_mcp_tool(entry.server, entry.tool, fill(entry.input, invocation.input))
        output, unknown = parse_stdout(invocation.event, text.strip(), is_cut=False)
        return HookRun(output=output, unknown=unknown, stdout=text)


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
