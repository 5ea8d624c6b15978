"""The engine's first door: one session between this process's stdin and stdout."""

from __future__ import annotations

import asyncio
import os
import signal

from parley.cli.main import complain
from parley.cli.text import Printer
from parley.compose import Composer, dialect, working_directory
from parley.engine.hub import Hub
from parley.engine.serve import Pump, serve
from parley.engine.session import Session
from parley.engine.stamp import Stamp
from parley.engine.usage import blank
from parley.errors import SessionError
from parley.protocol.base import UNSET, Message, spell
from parley.protocol.connection import Connection
from parley.protocol.messages.conversation import User, UserContent
from parley.protocol.messages.result import Result
from parley.protocol.options import Options
from parley.protocol.rules import Role
from parley.transports.stdio import Stdio

TERMINATED = 128 + signal.SIGTERM


def enter(options: Options, prompt: str | None) -> int:
    """Open the session and serve it to its end; returns the exit code. Raises UsageError."""
    stamp = Stamp()
    spoken = dialect(options)
    composer = Composer(options, dict(os.environ), working_directory(), stamp)
    try:
        setup = composer.setup(complain)
    except SessionError as flaw:
        return cannot_open(options, flaw, stamp)

    async def run() -> int:
        hub = Hub()
        if prompt is not None and options.output_format in (None, "text", "json"):
            printer = Printer(as_json=options.output_format == "json", everything=options.verbose)
            session = hub.open(setup, printer)
            stop = Stop(session)
            session.handle(user(prompt))
            session.finish()
            await session.run_turns()
        else:
            transport = Stdio()
            pump = Pump(Connection(Role.ENGINE, spoken), transport, stamp.new_uuid)
            session = hub.open(setup, pump)
            stop = Stop(session)
            try:
                if prompt is None:
                    await serve(transport, pump, session)
                else:
                    await serve_one(session, prompt, transport)
            finally:
                transport.close()
        hub.close(session.id)
        return stop.exit_code()

    return asyncio.run(run())


async def serve_one(session: Session, prompt: str, transport: Stdio) -> None:
    """One prompt, and the end."""
    session.handle(user(prompt))
    session.finish()
    await session.run_turns()
    await transport.drain()


def user(prompt: str) -> User:
    return User(message=UserContent(content=prompt))


class Stop:
    """What signals do: the turn is interrupted, its result is told, the process ends."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._signal: int | None = None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop, number)

    def _stop(self, number: int) -> None:
        self._signal = number
        self._session.interrupt()
        self._session.tasks.end()
        self._session.finish()

    def exit_code(self) -> int:
        """0 after a good last result or an interrupt from the keyboard, else 1; 143 when we were terminated."""
        if self._signal in (signal.SIGTERM, signal.SIGHUP):
            return TERMINATED
        if self._signal == signal.SIGINT:
            return 0
        last = self._session.last_result
        return 1 if last is not None and last.is_error is True else 0


def cannot_open(options: Options, flaw: SessionError, stamp: Stamp) -> int:
    """No session, but a client on a stream still gets its result."""
    complain(str(flaw))
    if options.output_format in ("stream-json", "message", "json"):
        asked = options.resume or options.session_id or stamp.new_uuid()
        os.write(1, spell(no_session(str(flaw), asked, stamp)) + b"\n")
    return 1


def no_session(reason: str, session_id: str, stamp: Stamp) -> Message:
    return Result(
        subtype="error_during_execution",
        is_error=True,
        duration_ms=0,
        duration_api_ms=0,
        num_turns=0,
        stop_reason=None,
        session_id=session_id,
        total_cost_usd=0,
        usage=blank(),
        modelUsage={},
        permission_denials=[],
        errors=[reason],
        uuid=stamp.new_uuid(),
        result_index=0,
        result=UNSET,
    )
