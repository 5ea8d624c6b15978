"""`parley mcp serve`: an MCP server that offers sessions and the tools of Parley, over stdin and stdout or HTTP.

Calls of Parley's tools pass through the same gate as those of a model: rules, mode, hooks, and the record of the
decision in the log of a session. No one can be asked, so a call that would need approval is denied. In a session that
the client starts, the client is asked.

See also: `parley/mcp/tool_server.py` speaks the protocol, `session_tools.py` has the sessions, `mcp_http.py` HTTP.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.acp.host import LocalSessions
from parley.cli.commands.server.acp import serve_lines
from parley.cli.commands.server.session_tools import SessionTools
from parley.cli.commands.subcommand import GivenArgs
from parley.cli.process_secrets import erase
from parley.cli.run import build_config, open_session
from parley.cli.stdio import warn
from parley.engine.clock import Clock
from parley.engine.session.config import SessionConfig
from parley.engine.turn.tool_executor import ToolExecutor, ToolOutcome
from parley.errors import UsageError
from parley.host import NoHost
from parley.mcp.tool_server import ToolServer
from parley.protocol.base import Json
from parley.protocol.blocks import ToolUse
from parley.protocol.options import ROWS, CliOptions
from parley.tools.base import Tool, tool_schema
from parley.tools.catalog import RESERVED_EFFECTS, find_traits
from parley.transports.stdio import StdioTransport

if TYPE_CHECKING:
    from parley.gateway.server import ServerSettings

DEFAULT_ADDRESS = "127.0.0.1:8788"
HTTP_FLAGS = ("listen", "token-file", "allow-host")
ONE_SESSION = frozenset({"session_id", "name", "resume", "continue_conversation", "fork_session", "steal"})
"""The options that name one session: the log of the calls of Parley's tools."""
NO_EFFECT = frozenset({"print", "input_format", "output_format", "include_partial_messages", "permission_prompt_tool"})
"""The options of the protocol between a client and its engine: here, MCP."""

MakeServer = Callable[[Callable[[bytes], None]], ToolServer]
"""Makes a server that sends its answers with a function."""


def serve(given: GivenArgs) -> int:
    """Serve until stdin ends, or with HTTP until a signal. Raises UsageError or SessionError."""
    for warning in list_without_effect(given.options):
        warn(warning)
    settings = read_http_settings(given)
    environment = dict(os.environ)
    erase()
    options = CliOptions(**{name: value for name, value in given.options.given.items() if name not in ONE_SESSION})
    sessions = LocalSessions(options=options, environment=environment, warn=warn)
    # The servers of this machine are not started for the tools' own session: their tools are not served.
    config = build_config(given.options.replace(strict_mcp_config=True), environment, Clock())
    config.workspace.processes.hides_engine = True
    return asyncio.run(serve_stdio(config, sessions) if settings is None else serve_web(config, sessions, settings))


def list_without_effect(options: CliOptions) -> list[str]:
    given = [row.flags[0] for row in ROWS if row.field in options.given and row.field in NO_EFFECT]
    return [f"option '{flag}' has no effect with `parley mcp serve`" for flag in given]


def read_http_settings(given: GivenArgs) -> ServerSettings | None:
    """None for stdin and stdout. Raises UsageError."""
    if not given.has("http"):
        if unused := next(filter(given.has, HTTP_FLAGS), None):
            raise UsageError(f"option '--{unused}' needs '--http'")
        return None
    from parley.gateway.hub import HubSettings
    from parley.gateway.server import ListenAddress, ServerSettings

    return ServerSettings(
        hub=HubSettings(state=Path(), root=""),  # there is no hub
        address=ListenAddress.parse(given.one("listen", DEFAULT_ADDRESS)),
        token_file=given.one("token-file"),
        hosts=frozenset(given.all("allow-host")),
    )


@asynccontextmanager
async def open_tools(config: SessionConfig, sessions: LocalSessions) -> AsyncIterator[MakeServer]:
    """All tools, until the end of the context."""
    session = open_session(config, NoHost())
    session.outbox.is_client_gone = True
    calls = ServedToolCalls(session.tool_executor, lambda: session.mode, session.clock.new_uuid)
    session_tools = SessionTools(sessions, config.cwd)
    names = {tool["name"] for tool in session_tools.descriptions}
    tools = [*session_tools.descriptions, *list_tools(session.tool_executor.tools)]

    async def run(name: str, arguments: Json) -> Json:
        return await (session_tools if name in names else calls).run(name, arguments)

    try:
        yield lambda send: ToolServer(tools, run, send)
    finally:
        await session_tools.close()
        session.stop()
        await session.run_turns()  # no turn is left; it closes every part
        session.journal.close()


async def serve_stdio(config: SessionConfig, sessions: LocalSessions) -> int:
    async with open_tools(config, sessions) as make_server:
        transport = StdioTransport()
        server = make_server(transport.write)
        return await serve_lines(transport, server.receive, server.close)


async def serve_web(config: SessionConfig, sessions: LocalSessions, settings: ServerSettings) -> int:
    """Raises UsageError."""
    from parley.cli.commands.server.mcp_http import serve_http
    from parley.gateway.reporting import ServerLog

    async with open_tools(config, sessions) as make_server:
        await serve_http(settings, ServerLog(warn), make_server)
    return 0


def list_tools(tools: Mapping[str, Tool]) -> list[Json]:
    """The tools that work without a conversation, as `tools/list` describes them."""
    served = [name for name in tools if find_traits(name).effect not in RESERVED_EFFECTS]
    schemas = [(tools[name], tool_schema(tools[name])) for name in served if not tools[name].always_asks]
    return [
        {
            "name": schema["name"],
            "description": schema["description"],
            "inputSchema": schema["input_schema"],
            "annotations": {"readOnlyHint": tool.reads_only},
        }
        for tool, schema in schemas
    ]


class ServedToolCalls:
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
