"""A tool of an MCP server, on the shelf beside our own.

The model's input goes to the server as it is: its schema is the server's, and so is the
judgement of it. What comes back is cleaned, and as much of it as a model may read at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

from parley.engine.mcp.resources import Library
from parley.engine.turn.result_spill import shortened, text_in_file
from parley.mcp.base import Patience, Supply
from parley.mcp.content import clean, described, result_of
from parley.mcp.naming import LONGEST_NAME, is_denied, normal, qualified, title
from parley.mcp.server import Server
from parley.models.catalog import CHARS_PER_TOKEN
from parley.protocol.base import Json
from parley.protocol.messages.notices import ToolProgress
from parley.tools.base import Context, Result, Tool
from parley.workspace.base import Reach

MOST_DESCRIPTION_CHARS = 20_000
MOST_RESULT_CHARS = 500_000
"""What a server may ask for at most, where it says how long its results are."""
SIZE_KEY = "anthropic/maxResultSizeChars"
PROGRESS_SECONDS = 1.0
"""Signs of progress are passed on no more often."""


class ServerTool:
    input = dict[str, Any]

    def __init__(
        self, server: Server, listed: Json, patience: Patience, most_chars: int, tell: Callable[..., None]
    ) -> None:
        self.server = server
        self.own_name: str = listed["name"]
        self.name = qualified(server.spec.name, self.own_name)
        self.server_name = normal(server.spec.name)
        self.description = clean(str(listed.get("description") or ""))[:MOST_DESCRIPTION_CHARS]
        schema = listed.get("inputSchema")
        self.input_schema: Json = (
            described(schema) if isinstance(schema, dict) and schema else {"type": "object", "properties": {}}
        )
        self.hints: Json = listed["annotations"] if isinstance(listed.get("annotations"), dict) else {}
        self.reads_only = self.hints.get("readOnlyHint") is True
        meta = listed.get("_meta")
        wanted = meta.get(SIZE_KEY) if isinstance(meta, dict) else None
        self._most_chars = min(wanted, MOST_RESULT_CHARS) if isinstance(wanted, int) else most_chars
        self.seconds = patience.of_call(server.spec, self.own_name)
        self._tell = tell

    @property
    def display_name(self) -> str:
        """Made from its name: what the server says of itself is not for those who decide on it."""
        return title(clean(self.own_name))

    @property
    def mcp_server(self) -> Json:
        return {"name": self.server.spec.name, "source": self.server.spec.source}

    @property
    def call_meta(self) -> Json:
        """How a client may show a call of it."""
        return {
            "display_name": self.display_name,
            "server_display_name": self.server.spec.name,
            "tool_name": clean(self.own_name),
        }

    async def run(self, call: Json, context: Context, reach: Reach) -> Result:
        """Raises ToolError."""
        tool_use_id = context.tool_use_id  # read before anything else can run
        answer = await self.server.call(
            self.own_name,
            call,
            meta={"claudecode/toolUseId": tool_use_id},
            seconds=self.seconds,
            progress=Reporter(self._tell, tool_use_id, self.name, context.clock),
        )
        return bounded(
            result_of(answer), self._most_chars, lambda ending: context.results_folder / f"{context.new_id()}.{ending}"
        )


class Reporter:
    """Passes signs of progress on to the host."""

    def __init__(self, tell: Callable[..., None], tool_use_id: str, name: str, clock: Callable[[], float]) -> None:
        self._tell = tell
        self._tool_use_id = tool_use_id
        self._name = name
        self._clock = clock
        self._begun = clock()
        self._told = float("-inf")

    def __call__(self, news: Json) -> None:
        now = self._clock()
        if now - self._told < PROGRESS_SECONDS:
            return
        self._told = now
        self._tell(
            ToolProgress(
                tool_use_id=self._tool_use_id,
                tool_name=self._name,
                parent_tool_use_id=None,
                elapsed_time_seconds=round(now - self._begun, 3),
            )
        )


def bounded(result: Result, most_chars: int, new_file: Callable[[str], Path]) -> Result:
    """A result whose text a model can read at once; the whole of it is in a file then."""
    content = result.content
    texts = [content] if isinstance(content, str) else [block["text"] for block in content if block["type"] == "text"]
    if sum(map(len, texts)) <= most_chars:
        return result
    short = text_in_file("\n".join(texts), new_file)
    if isinstance(content, str):
        return Result(content=short, detail=shortened(result.detail), is_error=result.is_error)
    others = [block for block in content if block["type"] != "text"]
    return Result(content=[{"type": "text", "text": short}, *others], detail=shortened(result.detail))


def libraries_of(servers: Iterable[Server], supply: Supply, context: Context) -> dict[str, Any]:
    """What the servers that are there have to read, by their names."""
    most_chars = supply.most_tokens * CHARS_PER_TOKEN
    return {
        server.spec.name: Library(
            server, most_chars, lambda ending: context.results_folder / f"{context.new_id()}.{ending}"
        )
        for server in servers
        if server.has("resources")
    }


def tools_of(
    servers: Iterable[Server], supply: Supply, tell: Callable[..., None], complain: Callable[[str], None]
) -> dict[str, Tool]:
    """The tools of all servers that are there, in the order of the servers: a late one changes only what follows it."""
    found: dict[str, Tool] = {}
    for server in servers:
        for listed in server.tools if server.status == "connected" else ():
            tool = ServerTool(server, listed, supply.patience, supply.most_tokens * CHARS_PER_TOKEN, tell)
            if len(tool.name) > LONGEST_NAME or tool.name in found:
                complain(
                    f"MCP server {server.spec.name!a}: the tool {tool.own_name[:200]!a} has no name of its own here"
                )
            elif not is_denied(server.spec.name, tool.name, supply.denied):
                # Its facts are those of the object, not of the class: the protocol cannot say both.
                found[tool.name] = cast(Tool, tool)
    return found
