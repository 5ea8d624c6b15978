"""`parley mcp serve`: an MCP server over stdin and stdout that runs the tools of Parley.

Calls pass through the same gate as those of a model: rules, mode, hooks, and the record of the decision in the log of
the session. No one can be asked, so a call that would need approval is denied.

See also: `parley/mcp/tool_server.py` speaks the protocol.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any

from parley.cli.commands.mcp.health import NoHost
from parley.cli.commands.subcommand import GivenArgs
from parley.cli.process_secrets import erase
from parley.cli.run import build_config, open_session
from parley.cli.stdio import warn
from parley.engine.clock import Clock
from parley.engine.session.config import SessionConfig
from parley.engine.session.hub import Hub
from parley.engine.turn.tool_executor import ToolExecutor, ToolOutcome
from parley.mcp.tool_server import ToolServer
from parley.protocol.base import Json
from parley.protocol.blocks import ToolUse
from parley.protocol.framing import Framer
from parley.protocol.options import ROWS, CliOptions
from parley.tools.base import Tool, always_asks, tool_schema
from parley.tools.catalog import RESERVED_EFFECTS, find_traits
from parley.transports.stdio import StdioTransport

WITHOUT_MODEL = frozenset(
    {"tools", "allowed_tools", "disallowed_tools", "permission_mode", "skip_permissions", "allow_skip_permissions"}
    | {"add_dirs", "settings", "setting_sources", "managed_settings", "project_config_root", "restricted", "safe_mode"}
    | {"bare", "offline", "plugin_dirs", "plugin_dirs_no_mcp", "store", "database", "fsync", "name", "session_id"}
    | {"no_session_persistence", "resume", "continue_conversation", "fork_session", "steal", "verbose"}
)
"""The options that have an effect although no model is called."""


def serve(given: GivenArgs) -> int:
    """Serve until stdin ends. Raises UsageError or SessionError."""
    for warning in list_without_effect(given.options):
        warn(warning)
    # The servers of this machine are not started: their tools are not served.
    options = given.options.replace(strict_mcp_config=True)
    environment = dict(os.environ)
    erase()
    config = build_config(options, environment, Clock())
    config.workspace.processes.hides_engine = True
    return asyncio.run(serve_session(config))


def list_without_effect(options: CliOptions) -> list[str]:
    given = [row.flags[0] for row in ROWS if row.field in options.given and row.field not in WITHOUT_MODEL]
    return [f"option '{flag}' has no effect with `parley mcp serve`" for flag in given]


async def serve_session(config: SessionConfig) -> int:
    hub, transport = Hub(), StdioTransport()
    try:
        session = open_session(hub, config, NoHost())
        session.outbox.is_client_gone = True
        executor = session.tool_executor
        calls = ToolCalls(executor, lambda: session.mode, session.clock.new_uuid)
        server = ToolServer(list_tools(executor.tools), calls.run, transport.write)
        framer = Framer()
        try:
            async for chunk in transport.chunks():
                for line in framer.feed(chunk):
                    server.receive(line)
        except BrokenPipeError:  # the client is gone
            pass
        await server.close()
        await transport.drain()
        session.stop()
        await session.run_turns()  # no turn is left; it closes every part
        hub.close(session)
    finally:
        transport.close()
    return 0


def list_tools(tools: Mapping[str, Tool]) -> list[Json]:
    """The tools that work without a conversation, as `tools/list` describes them."""
    served = [name for name in tools if find_traits(name).effect not in RESERVED_EFFECTS]
    schemas = [(tools[name], tool_schema(tools[name])) for name in served if not always_asks(tools[name])]
    return [
        {
            "name": schema["name"],
            "description": schema["description"],
            "inputSchema": schema["input_schema"],
            "annotations": {"readOnlyHint": tool.reads_only},
        }
        for tool, schema in schemas
    ]


class ToolCalls:
    """Runs the calls of clients. Calls that change something run one after the other."""

    def __init__(self, executor: ToolExecutor, mode: Callable[[], str], new_uuid: Callable[[], str]) -> None:
        self._executor = executor
        self._mode = mode
        self._new_uuid = new_uuid
        self._changing = asyncio.Lock()

    async def run(self, name: str, arguments: Json) -> Json:
        """Return the result of `tools/call`."""
        id = f"toolu_{self._new_uuid().replace('-', '')[:24]}"
        call = ToolUse({"type": "tool_use", "id": id, "name": name, "input": arguments})
        if self._executor.is_read_only(call):
            return build_result(await self._executor.run(call, self._mode))
        async with self._changing:
            return build_result(await self._executor.run(call, self._mode))


def build_result(outcome: ToolOutcome) -> Json:
    content = outcome.output.content
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(map(convert_block, content))
    notes = [*outcome.contexts, *([outcome.stop_reason] if outcome.stop_reason else [])]
    return {
        "content": [*blocks, *({"type": "text", "text": note} for note in notes)],
        "isError": outcome.output.is_error is True,
    }


def convert_block(block: Json) -> Json:
    """A content block of the Messages API as one of MCP."""
    source: Any = block.get("source")
    if block.get("type") == "text":
        return {"type": "text", "text": block.get("text", "")}
    if isinstance(source, dict) and source.get("type") == "base64":
        mime, data = source.get("media_type", "application/octet-stream"), source.get("data", "")
        if block.get("type") == "image":
            return {"type": "image", "data": data, "mimeType": mime}
        return {"type": "resource", "resource": {"uri": "parley:document", "mimeType": mime, "blob": data}}
    return {"type": "text", "text": f"[{block.get('type')} content omitted, because MCP cannot represent it]"}
