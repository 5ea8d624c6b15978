"""`parley acp`: an agent for editors, over stdin and stdout."""

from __future__ import annotations

import asyncio
import os
import signal

from parley.acp.agent import AcpAgent
from parley.acp.local_sessions import LocalSessions
from parley.cli.commands.subcommand import GivenArgs
from parley.cli.process_secrets import erase
from parley.cli.stdio import warn
from parley.errors import InvalidArguments
from parley.jsonrpc import PARSE_ERROR, RpcConnection, RpcError
from parley.protocol.framing import Framer
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
    transport, framer = StdioTransport(), Framer()
    connection = RpcConnection(transport.write)
    agent = AcpAgent(connection, host)
    ended_by = cancel_at_signals()
    try:
        async for chunk in transport.chunks():
            for line in framer.feed(chunk):
                if isinstance(line, bytes):
                    connection.receive(line)
                else:
                    connection.send_error(
                        None, RpcError(PARSE_ERROR, f"the line is longer than {line.cap_bytes} bytes")
                    )
    except BrokenPipeError:  # the client is gone
        pass
    except asyncio.CancelledError:
        if not ended_by:
            raise
    finally:
        await agent.close()
        await transport.drain()
        transport.close()
    return 128 + ended_by[0] if ended_by else 0


def cancel_at_signals() -> list[int]:
    """Cancel this task at a signal that ends the process. The list then has the signal."""
    ended_by: list[int] = []
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def end(number: int) -> None:
        ended_by.append(number)
        assert task is not None
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, end, number)
    return ended_by
