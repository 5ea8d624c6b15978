"""The engine's first door: one session between this process's stdin and stdout."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Iterable
from time import monotonic
from typing import TYPE_CHECKING, NoReturn, Self

from parley.cli.main import restore_sigint
from parley.cli.output import ResultPrinter
from parley.cli.process_secrets import erase
from parley.cli.stdio import warn, write
from parley.compose.composer import Composer
from parley.compose.launch_context import working_directory
from parley.compose.registry import get_profile, make_dialect
from parley.engine.clock import Clock
from parley.engine.session.config import SessionConfig
from parley.engine.session.hub import Hub
from parley.engine.session.pump import Pump, serve
from parley.engine.session.session import Session
from parley.errors import SessionError, UsageError
from parley.host import Host
from parley.protocol.base import Message
from parley.protocol.connection import Connection
from parley.protocol.messages.conversation import User, UserContent
from parley.protocol.options import CliOptions
from parley.protocol.roles import Role
from parley.transports.reader import ReaderWatch
from parley.transports.stdio import StdioTransport

if TYPE_CHECKING:
    from parley.cli.debug import DebugLog
    from parley.cli.handshake import PendingConnection
    from parley.memory.base import MemoryWorker

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ECHO_SECONDS = 0.1
"""Some send a signal to us and then to our group, which has us in it: so soon, the same one again is the same."""
DRAIN_SECONDS = 2
"""How long the reader of stdout is waited for after a signal."""
UNREAD_SECONDS = 1.4
"""How long we take to end when stdout has no reader any more. What then still runs is killed by the guard."""


def run_session(options: CliOptions, prompt: str | None, pending: PendingConnection | None = None) -> int:
    """Open the session and serve it to its end; returns the exit code. Raises UsageError.

    `guest`: the host who has said something already.
    """
    stamp, environment = Clock(), dict(os.environ)
    erase()
    connection, begun = (pending.connection, pending.messages) if pending is not None else (connect(options, stamp), ())
    try:
        setup = build_config(options, environment, stamp)
        setup.tool_context.processes.hides_engine = True
        if options.debug is not None or options.debug_file is not None or options.debug_to_stderr:
            setup, debug = attach_debug(options, setup, stamp)
        else:
            debug = None
        if prompt is not None and options.output_format in (None, "text", "json"):
            as_json = options.output_format == "json"
            printer = ResultPrinter(
                as_json=as_json, everything=options.verbose, lines=make_dialect(options, stamp).encode
            )
            code = asyncio.run(print_one(setup, prompt, printer))
            # Printed after the loop has gone, so that a signal ends us even if nobody reads.
            restore_sigint()
            return code if printer.close() else 1
        is_server = get_profile(options).over_stdio
        return asyncio.run(stream(setup, prompt, connection, stamp, begun, debug, is_server=is_server))
    except OpenFailed as exc:
        return cannot_open(options, str(exc), connection, stamp, begun)
    except UsageError as exc:
        if pending is None:
            raise
        return cannot_open(options, str(exc), connection, stamp, begun)  # it waits for an answer already
    except KeyboardInterrupt:  # the loop has gone, and its handler with it
        return INTERRUPTED


def connect(options: CliOptions, stamp: Clock) -> Connection:
    """Raises UsageError."""
    return Connection(Role.ENGINE, make_dialect(options, stamp))


class OpenFailed(SessionError):
    """There is no session yet that could tell of the flaw itself."""


def build_config(options: CliOptions, environment: dict[str, str], stamp: Clock) -> SessionConfig:
    """The parts of the session. Raises UsageError or CannotOpen."""
    try:
        return Composer(options, environment, working_directory(), stamp).make_config(warn)
    except SessionError as exc:
        raise OpenFailed(str(exc)) from None
    except OSError as exc:
        raise OpenFailed(f"the session cannot be opened: {exc.filename}: {exc.strerror}") from None


def attach_debug(options: CliOptions, setup: SessionConfig, stamp: Clock) -> tuple[SessionConfig, DebugLog]:
    """The same session with notes taken of it, and who takes them. Raises UsageError."""
    from parley.cli.debug import attach, open_debug_log
    from parley.compose.launch_context import LaunchContext

    try:
        folder = LaunchContext(options, dict(os.environ), setup.cwd, stamp).config / "debug"
        debug = open_debug_log(options, folder, setup.session_id, stamp, warn)
    except UsageError:
        setup.storage.log.close()
        raise
    return attach(setup, debug), debug


def open_session(hub: Hub, setup: SessionConfig, host: Host) -> Session:
    """Raises CannotOpen."""
    try:
        session = hub.open(setup, host)
    except SessionError as exc:
        raise OpenFailed(str(exc)) from None
    # What is loaded by now stays to the end, a long conversation with it: nobody looks through it for garbage.
    gc.freeze()
    gc.enable()
    return session


async def print_one(setup: SessionConfig, prompt: str, printer: ResultPrinter) -> int:
    """One prompt, for a host that is no stream; returns the exit code."""
    hub = Hub()
    session = open_session(hub, setup, printer)
    session.outbox.is_client_gone = True  # the printer answers nothing
    with SignalHandler(session) as stop:
        session.handle(user_message(prompt))
        session.close_input()
        early = None
        if session.memory_worker is not None and not printer.waits_for_all:
            early = asyncio.create_task(print_early(session.memory_worker, printer))
        await session.run_turns()
        if early is not None:
            early.cancel()  # a thread that prints by now goes on
        hub.close(session.id)
    return stop.exit_code()


async def print_early(remembering: MemoryWorker, printer: ResultPrinter) -> None:
    """The answer is there, and only what is worth remembering of it is still looked for: nobody shall wait for that."""
    from parley._threads import run_in_thread

    await remembering.awaited.wait()
    await run_in_thread(printer.close)


async def stream(
    setup: SessionConfig,
    prompt: str | None,
    connection: Connection,
    stamp: Clock,
    begun: Iterable[Message],
    debug: DebugLog | None = None,
    *,
    is_server: bool = False,
) -> int:
    """Lines on stdout, for one prompt or for those that come on stdin; returns the exit code.

    `begun`: what came before there was a session. `is_server`: the end of stdin is a good end,
    however the last turn went.
    """
    hub, transport = Hub(), StdioTransport()
    try:
        pump = Pump(connection, transport, stamp.new_uuid)
        if debug is not None:
            from parley.cli.debug import LoggedPump

            pump = LoggedPump(connection, transport, stamp.new_uuid, debug)
        session = open_session(hub, setup, pump)
        with SignalHandler(session, transport, is_server=is_server) as stop:
            if prompt is None:
                await serve(transport, pump, session, begun)
            else:
                pump.fail_requests(session)
                await serve_one(session, prompt, transport)
            transport.close()
            hub.close(session.id)
    finally:
        transport.close()
    if transport.error is not None:
        warn(f"Error: stdout cannot be written: {transport.error.strerror}")
        return stop.exit_code() or 1
    return stop.exit_code()


async def serve_one(session: Session, prompt: str, transport: StdioTransport) -> None:
    """One prompt, and the end."""
    session.handle(user_message(prompt))
    session.close_input()
    await session.run_turns()
    await transport.drain()


def user_message(prompt: str) -> User:
    return User(message=UserContent(content=prompt))


class SignalHandler:
    """What signals do: the turn is interrupted, its result is told, the process ends. A second one ends it at once.

        with Stop(session) as stop: ...

    The same happens, in a hurry, when stdout has no reader any more: the host has died, or does not want the rest.

    The second one does not wait for the loop, which may hang. SIGHUP stays ignored where it is: that is `nohup`. The
    loop's own `add_signal_handler` would load `inspect` for a look at the callback, some 5 ms.
    """

    def __init__(self, session: Session, transport: StdioTransport | None = None, *, is_server: bool = False) -> None:
        self._session = session
        self._transport = transport
        self._is_server = is_server
        self._signal: int | None = None
        self._since = 0.0
        self._loop = asyncio.get_running_loop()
        is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._signals = [number for number in SIGNALS if not (is_ignored and number == signal.SIGHUP)]

    def __enter__(self) -> Self:
        for number in self._signals:
            signal.signal(number, self._wake)
        self._reader = ReaderWatch(1, self._abandon)
        return self

    def __exit__(self, *_: object) -> None:
        """The loop ends, and nobody would hear of a signal any more: it ends the process."""
        self._reader.close()
        for number in self._signals:
            signal.signal(number, signal.SIG_DFL)

    def _wake(self, number: int, _frame: object) -> None:
        """Between two steps of whatever runs: the loop does the rest when it is safe."""
        if self._signal is None:
            self._signal, self._since = number, monotonic()
            self._loop.call_soon_threadsafe(self._stop)
        elif number != self._signal or monotonic() - self._since > ECHO_SECONDS:
            self._exit(number)

    def _stop(self) -> None:
        self._session.stop()
        if self._transport is not None:
            self._transport.limit_drain(DRAIN_SECONDS)

    def _abandon(self) -> None:
        """Stdout has no reader any more. Whatever hangs, the kernel ends us in time."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, UNREAD_SECONDS)
        self._session.abandon()

    def _exit(self, number: int) -> NoReturn:
        """Commands that still run are ended by the guard they were started through."""
        if self._transport is not None:
            self._transport.close()
        os._exit(INTERRUPTED if number == signal.SIGINT else TERMINATED)

    def exit_code(self) -> int:
        """0 after a good last result or an interrupt from the keyboard, else 1; 143 when we were terminated.

        A server's results are its clients' affair: it ends with 0.
        """
        if self._signal in (signal.SIGTERM, signal.SIGHUP):
            return TERMINATED
        if self._signal == signal.SIGINT or self._is_server:
            return 0
        last = self._session.runner.last_result
        return 1 if last is not None and last.is_error is True else 0


def cannot_open(
    options: CliOptions, flaw: str, connection: Connection, stamp: Clock, begun: Iterable[Message] = ()
) -> int:
    """No session, but a client on a stream still gets its result."""
    warn(flaw)
    asked = options.resume or options.session_id or stamp.new_uuid()
    if get_profile(options).over_stdio:
        from parley.cli.handshake import reject

        reject(connection, begun, flaw, asked, stamp)
    elif options.output_format in ("stream-json", "message", "json"):
        from parley.engine.session.no_session import no_session_result

        write(connection.send(no_session_result(flaw, asked, stamp)))
    return 1
