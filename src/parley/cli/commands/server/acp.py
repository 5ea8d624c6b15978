"""`parley acp`: an agent for editors, over stdin and stdout."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress

from parley.acp.agent import AcpAgent
from parley.acp.host import LocalSessions
from parley.cli.commands.subcommand import GivenArgs
from parley.cli.process_secrets import erase
from parley.cli.signals import run_until_signal
from parley.cli.stdio import warn
from parley.errors import InvalidArguments
from parley.jsonrpc import PARSE_ERROR, RpcConnection, RpcError
from parley.protocol.framing import Framer, Line
from parley.protocol.options import ROWS
from parley.transports.stdio import StdioTransport

NOT_FOR_ALL = ("resume", "continue_conversation", "session_id", "fork_session", "print")
"""Options that name one session, or end with one prompt."""


def serve_acp(given: GivenArgs) -> int:
    """Serve until stdin ends. Raises UsageError."""
    for row in ROWS:
        if row.field in NOT_FOR_ALL and row.field in given.options.given:
            raise InvalidArguments(
                f"option '{row.flags[0]}' cannot be used with `parley acp`, because the editor opens the sessions"
            )
    environment = dict(os.environ)
    erase()
    return asyncio.run(run_agent(LocalSessions(options=given.options, environment=environment, warn=warn)))


async def run_agent(host: LocalSessions) -> int:
    transport = StdioTransport()
    connection = RpcConnection(transport.write)
    agent = AcpAgent(connection, host)

    def receive(line: Line) -> None:
        if isinstance(line, bytes):
            connection.receive(line)
        else:
            connection.send_error(None, RpcError(PARSE_ERROR, f"the line is longer than {line.cap_bytes} bytes"))

    return await serve_lines(transport, receive, agent.close)


async def serve_lines(
    transport: StdioTransport, receive: Callable[[Line], None], close: Callable[[], Awaitable[None]]
) -> int:
    """Pass on the lines of stdin until it ends, or a signal arrives; returns the exit code."""

    async def read() -> None:
        framer = Framer()
        with suppress(BrokenPipeError):  # the client is gone
            async for chunk in transport.chunks():
                for line in framer.feed(chunk):
                    receive(line)

    try:
        ended_by = await run_until_signal(read())
    finally:
        await close()
        await transport.drain()
        transport.close()
    return 128 + ended_by if ended_by else 0
