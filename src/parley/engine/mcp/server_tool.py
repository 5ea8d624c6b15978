"""A tool of an MCP server, in the registry beside the built-in tools.

The model's input is sent unchanged: the server defines the schema and validates against it. The result
is cleaned, and cut to what a model can read at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from parley.engine.mcp.resources import ResourceReader, save_binary_content
from parley.engine.turn.result_spill import shorten_values, spill_text
from parley.mcp.base import McpTimeouts, ServerSources
from parley.mcp.content import (
    LEFT_OUT_KEY,
    MAX_NAME_CHARS,
    clean,
    clean_schema,
    convert_result,
    is_denied,
    normalize,
    qualify,
    text_block,
    title,
)
from parley.mcp.server_connection import McpServer
from parley.models.catalog import CHARS_PER_TOKEN
from parley.protocol.base import Json
from parley.protocol.messages.notices import ToolProgress
from parley.tools.base import Context, Tool, ToolOutput
from parley.workspace.base import Scope
from parley.workspace.process.processes import ResultFile

MAX_DESCRIPTION_CHARS = 20_000
MAX_HINT_CHARS = 1_000
MAX_RESULT_CHARS = 500_000
"""Upper limit for the result size that a server requests."""
SIZE_KEY = "anthropic/maxResultSizeChars"
ALWAYS_LOAD_KEY = "anthropic/alwaysLoad"
HINT_KEY = "anthropic/searchHint"
PROGRESS_SECONDS = 1.0
"""Minimum time between progress messages."""


class ServerTool:
    input = dict[str, Any]

    def __init__(
        self, server: McpServer, listed: Json, timeouts: McpTimeouts, max_chars: int, send: Callable[..., None]
    ) -> None:
        self.server = server
        self.own_name: str = listed["name"]
        self.name = qualify(server.spec.name, self.own_name)
        self.server_name = normalize(server.spec.name)
        self.description = clean(str(listed.get("description") or ""))[:MAX_DESCRIPTION_CHARS]
        schema = listed.get("inputSchema")
        self.input_schema: Json = (
            clean_schema(schema) if isinstance(schema, dict) and schema else {"type": "object", "properties": {}}
        )
        self.hints: Json = listed["annotations"] if isinstance(listed.get("annotations"), dict) else {}
        self.reads_only = self.hints.get("readOnlyHint") is True
        meta: Json = listed["_meta"] if isinstance(listed.get("_meta"), dict) else {}
        self.problem = clean(str(meta[LEFT_OUT_KEY])) if LEFT_OUT_KEY in meta else ""
        """Why it cannot be called; empty if it can."""
        wanted = meta.get(SIZE_KEY)
        self.is_deferrable = not is_always_loaded(server.spec.always_load, meta.get(ALWAYS_LOAD_KEY))
        hint = meta.get(HINT_KEY)
        self.search_hint = clean(hint)[:MAX_HINT_CHARS] if isinstance(hint, str) else ""
        self._max_chars = min(wanted, MAX_RESULT_CHARS) if isinstance(wanted, int) else max_chars
        self.timeout_seconds = timeouts.for_call(server.spec, self.own_name)
        self._send = send

    @property
    def display_name(self) -> str:
        """Made from the tool's name. The title that the server declares is not trusted for permission requests."""
        return title(clean(self.own_name))

    @property
    def mcp_server(self) -> Json:
        return {"name": self.server.spec.name, "source": self.server.spec.source}

    @property
    def call_meta(self) -> Json:
        """How a client can show a call of the tool."""
        return {
            "display_name": self.display_name,
            "server_display_name": self.server.spec.name,
            "tool_name": clean(self.own_name),
        }

    async def run(self, call: Json, context: Context, reach: Scope) -> ToolOutput:
        """Raises ToolError."""
        answer = await self.server.call(
            self.own_name,
            call,
            meta={"claudecode/toolUseId": reach.call},
            seconds=self.timeout_seconds,
            progress=ProgressReporter(self._send, reach.call, self.name, context.clock),
        )
        answer, saved = save_binary_content(answer, self.server.spec.name, context.new_result_file)
        output = convert_result(answer)
        if saved and isinstance(output.content, str) and not output.is_error:
            # Structured content replaces the blocks, but only they name the files.
            output = ToolOutput(content=[text_block(output.content), *saved], detail=output.detail)
        return limit_output(output, self._max_chars, context.new_result_file)


def is_always_loaded(by_server: bool | None, by_tool: object) -> bool:
    """Whether the model gets a tool's definition at once: as its server is configured, else as the tool declares."""
    return by_tool is not False if by_server else by_server is None and by_tool is True


class ProgressReporter:
    """Forwards progress notifications to the client."""

    def __init__(self, send: Callable[..., None], tool_use_id: str, name: str, clock: Callable[[], float]) -> None:
        self._send = send
        self._tool_use_id = tool_use_id
        self._name = name
        self._clock = clock
        self._started_at = clock()
        self._last_sent_at = float("-inf")

    def __call__(self, news: Json) -> None:
        now = self._clock()
        if now - self._last_sent_at < PROGRESS_SECONDS:
            return
        self._last_sent_at = now
        self._send(
            ToolProgress(
                tool_use_id=self._tool_use_id,
                tool_name=self._name,
                parent_tool_use_id=None,
                elapsed_time_seconds=round(now - self._started_at, 3),
            )
        )


def limit_output(result: ToolOutput, max_chars: int, new_file: Callable[[str], ResultFile]) -> ToolOutput:
    """Shorten the text of a result to what a model can read at once; the full text goes to a file."""
    content = result.content
    texts = [content] if isinstance(content, str) else [block["text"] for block in content if block["type"] == "text"]
    if sum(map(len, texts)) <= max_chars:
        return result
    short = spill_text("\n".join(texts), new_file)
    if isinstance(content, str):
        return ToolOutput(content=short, detail=shorten_values(result.detail), is_error=result.is_error)
    others = [block for block in content if block["type"] != "text"]
    return ToolOutput(content=[{"type": "text", "text": short}, *others], detail=shorten_values(result.detail))


def make_readers(
    servers: Iterable[McpServer], sources: ServerSources, new_file: Callable[[str], ResultFile]
) -> dict[str, ResourceReader]:
    """Resource readers for the connected servers, by name."""
    max_chars = sources.max_output_tokens * CHARS_PER_TOKEN
    return {
        server.spec.name: ResourceReader(server, max_chars, new_file) for server in servers if server.has("resources")
    }


def make_tools(
    servers: Iterable[McpServer], sources: ServerSources, send: Callable[..., None], warn: Callable[[str], None]
) -> dict[str, Tool]:
    """The tools of all connected servers, in the order of the servers, so that a late one changes only what follows."""
    found: dict[str, Tool] = {}
    for server in servers:
        for listed in server.tools if server.status == "connected" else ():
            tool = ServerTool(server, listed, sources.timeouts, sources.max_output_tokens * CHARS_PER_TOKEN, send)
            problem = tool.problem
            if len(tool.name) > MAX_NAME_CHARS or tool.name in found:
                problem = "its name is too long or already used"
            if problem:
                shown = f"the tool {tool.own_name[:200]!a}"
                warn(f"MCP server {server.spec.name!a}: {shown} is left out: {problem}")
            elif not is_denied(server.spec.name, tool.name, sources.denied):
                # Its attributes belong to the instance, not the class; the protocol cannot express both.
                found[tool.name] = cast(Tool, tool)
    return found
