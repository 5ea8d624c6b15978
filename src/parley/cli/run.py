"""Run one session on stdin and stdout.

`run_session` builds the session and serves it: for one prompt whose result is printed, for one prompt
with a stream of messages, or for prompts that arrive on stdin.

See also: `handshake.py` for messages before the session is opened, `output.py` for printing results,
`one_prompt.py` for the view of a person.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, NoReturn, Self

from parley.cli.output import ResultPrinter, is_for_person
from parley.cli.process_secrets import erase
from parley.cli.stdio import restore_sigint, warn, write
from parley.compose.composer import Composer
from parley.compose.launch_context import working_directory
from parley.compose.registry import get_profile, make_dialect
from parley.engine.clock import Clock
from parley.engine.session.config import SessionConfig
from parley.engine.session.pump import Pump, serve
from parley.engine.session.session import Session
from parley.errors import MissingPrompt, SessionError, StartRefused, UsageError
from parley.host import Host
from parley.protocol.base import UNSET, Message, Role, Struct
from parley.protocol.connection import Connection
from parley.protocol.messages.conversation import User, UserContent
from parley.protocol.options import CliOptions
from parley.settings.env_vars import is_truthy
from parley.transports.stdio import ReaderWatch, StdioTransport

if TYPE_CHECKING:
    from parley.cli.debug import DebugLog
    from parley.cli.handshake import PendingConnection
    from parley.memory.base import MemoryWorker

DIES_WITH_CLIENT = "PARLEY_DIES_WITH_CLIENT"
"""Set by the gateway. If it is killed, the engine must not take the end of its input for an answer."""
DENIED = 3
"""A call was denied, with --fail-on-denial."""
INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ECHO_SECONDS = 0.1
"""Some callers signal the process and then its group. The same signal within this time counts as one."""
DRAIN_SECONDS = 2
"""How long to wait for the reader of stdout after a signal."""
UNREAD_SECONDS = 1.4
"""How long the process may take to exit after stdout lost its reader. The guard kills commands that still run."""


class SessionRun(Struct, frozen=True):
    """What one run of the executable consists of, from the first message on."""

    options: CliOptions
    connection: Connection
    clock: Clock
    received: Iterable[Message] = ()
    """Messages that arrived before the session was opened."""
    warned: Sequence[str] = ()
    """Warnings about the command line, which a client that reads messages is sent."""

    @property
    def is_server(self) -> bool:
        """Whether the client sends prompts until it closes stdin, which is a regular end."""
        return get_profile(self.options).over_stdio


def make_run(options: CliOptions, pending: PendingConnection | None, warned: Sequence[str]) -> SessionRun:
    """`pending`: a connection on which messages have already arrived. Raises UsageError."""
    clock = Clock()
    if pending is None:
        return SessionRun(options, Connection(Role.ENGINE, make_dialect(options, clock)), clock, (), warned)
    return SessionRun(options, pending.connection, clock, pending.messages, warned)


def run_session(
    options: CliOptions, prompt: str | None, pending: PendingConnection | None = None, warned: Sequence[str] = ()
) -> int:
    """Open the session and serve it until it ends; returns the exit code. Raises UsageError.

    `pending`: a connection on which messages have already arrived.
    `warned`: warnings about the command line, which a client that reads messages is sent.
    """
    environment = dict(os.environ)
    erase()
    run = make_run(options, pending, warned)
    clock, terminal = run.clock, None
    if prompt is not None and pending is None and is_for_person(options):
        from parley.cli.one_prompt import TerminalRun

        terminal = TerminalRun(options, environment)
        options = terminal.options
    try:
        config = build_config(options, environment, clock, warned, warn if terminal is None else terminal.warn)
        config.workspace.processes.hides_engine = True
        config, debug = with_debug(options, config, clock)
        if terminal is not None and prompt is not None:
            return asyncio.run(terminal.run(config, prompt))
        if prompt is not None and options.output_format in (None, "text", "json"):
            as_json = options.output_format == "json"
            printer = ResultPrinter(
                as_json=as_json, everything=options.verbose, lines=make_dialect(options, clock).encode
            )
            code = asyncio.run(print_one(config, prompt, printer))
            # Print after the loop has ended, so that a signal ends the process even if nothing reads stdout.
            restore_sigint()
            return code if printer.close() else 1
        return asyncio.run(stream(run, config, prompt, debug))
    except (StartRefused, UsageError) as exc:
        return cannot_open(run, exc, is_awaited=pending is not None)
    except KeyboardInterrupt:  # after the loop and its signal handler have ended
        return INTERRUPTED


def build_config(
    options: CliOptions,
    environment: dict[str, str],
    clock: Clock,
    warned: Sequence[str] = (),
    warn: Callable[[str], None] = warn,
) -> SessionConfig:
    """Raises UsageError or StartRefused."""
    try:
        cwd = working_directory()
        if options.worktree is None:
            return Composer(options, environment, cwd, clock, warn=warn).make_config(warned)
        from parley.compose.setup.worktree import open_worktree

        with open_worktree(options, environment, cwd) as worktree:
            return Composer(options, environment, cwd, clock, worktree, warn=warn).make_config(warned)
    except StartRefused:
        raise
    except SessionError as exc:
        raise StartRefused(str(exc)) from None
    except OSError as exc:
        raise StartRefused(f"cannot open the session: {exc.filename}: {exc.strerror}") from None


def with_debug(options: CliOptions, config: SessionConfig, clock: Clock) -> tuple[SessionConfig, DebugLog | None]:
    """The config, writing to the debug log if the options ask for one. Raises UsageError."""
    if options.debug is None and options.debug_file is None and not options.debug_to_stderr:
        return config, None
    from parley.cli.debug import attach_debug

    return attach_debug(options, config, clock)


def open_session(config: SessionConfig, host: Host) -> Session:
    """The session of this process; close its journal at the end. Raises StartRefused."""
    try:
        session = Session(config, host)
    except SessionError as exc:
        raise StartRefused(str(exc)) from None
    # Everything loaded so far lives until the end, including a resumed conversation: exclude it from collection.
    gc.freeze()
    gc.enable()
    return session


async def print_one(config: SessionConfig, prompt: str, printer: ResultPrinter) -> int:
    """Run one prompt and print its result; returns the exit code."""
    session = open_session(config, printer)
    session.outbox.is_client_gone = True  # the printer answers no requests
    with SignalHandler(session) as stop:
        begin(session, prompt)
        session.close_input()
        early = None
        if session.memory_worker is not None and not printer.waits_for_all:
            early = asyncio.create_task(print_early(session.memory_worker, printer))
        await session.run_turns()
        if early is not None:
            early.cancel()  # a thread that is already printing continues
        session.journal.close()
    return stop.exit_code()


async def print_early(worker: MemoryWorker, printer: ResultPrinter) -> None:
    """Print the answer while the memory of the turn is still being summarized."""
    from parley._threads import run_in_thread

    await worker.awaited.wait()
    await run_in_thread(printer.close)


async def stream(run: SessionRun, config: SessionConfig, prompt: str | None, debug: DebugLog | None = None) -> int:
    """Serve a stream of messages, for one prompt or for those that arrive on stdin; returns the exit code."""
    transport = StdioTransport()
    try:
        pump = make_pump(run, transport, debug)
        if is_truthy(os.environ.get(DIES_WITH_CLIENT)):
            pump.on_disconnect = die
        session = open_session(config, pump)
        with SignalHandler(session, transport, is_server=run.is_server) as stop:
            if prompt is None:
                await serve(transport, pump, session, run.received)
            else:
                pump.fail_requests(session)
                await serve_one(session, prompt, transport)
            transport.close()
            session.journal.close()
    finally:
        transport.close()
    return finish(transport, stop)


def finish(transport: StdioTransport, stop: SignalHandler) -> int:
    """The exit code of a stream that has ended."""
    if transport.error is not None:
        warn(f"Error: cannot write stdout: {transport.error.strerror}")
        return stop.exit_code() or 1
    return stop.exit_code()


def die() -> NoReturn:
    """Leave everything as it is, for the engine that resumes the session. The guard ends commands that still run."""
    os._exit(1)


def make_pump(run: SessionRun, transport: StdioTransport, debug: DebugLog | None) -> Pump:
    if debug is None:
        return Pump(run.connection, transport, run.clock.new_uuid)
    from parley.cli.debug import LoggedPump

    return LoggedPump(run.connection, transport, run.clock.new_uuid, debug)


async def serve_one(session: Session, prompt: str, transport: StdioTransport) -> None:
    """Run one prompt, then end the session."""
    begin(session, prompt)
    session.close_input()
    await session.run_turns()
    await transport.drain()


def begin(session: Session, prompt: str) -> None:
    """Start with the prompt; without one, with the call that a hook deferred. Raises MissingPrompt."""
    if prompt.strip():
        session.handle(User(message=UserContent(content=prompt)))
        return
    if session.recovery.turn is None:
        raise MissingPrompt("the session has no deferred tool call to continue with")
    session.servers.start()
    session.resume_turn()


class SignalHandler:
    """Handles signals: the first interrupts the turn, sends its result and ends the process; the second exits at once.

        with SignalHandler(session) as stop: ...

    The second signal does not wait for the loop, which may hang. If SIGHUP is ignored, as under `nohup`, it stays
    ignored. When stdout loses its reader, the turn is interrupted too, with less time to finish.

    The loop's `add_signal_handler` is not used because it imports `inspect`, which takes about 5 ms.
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
        self._reader = ReaderWatch(1, die if is_truthy(os.environ.get(DIES_WITH_CLIENT)) else self._abandon)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the default handlers: after the loop has ended, a signal must end the process."""
        self._reader.close()
        for number in self._signals:
            signal.signal(number, signal.SIG_DFL)

    def _wake(self, number: int, _frame: object) -> None:
        """Called between two bytecodes, so leave the work to the loop."""
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
        """Stop the session after stdout lost its reader. A timer ends the process even if something hangs."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, UNREAD_SECONDS)
        self._session.abandon()

    def _exit(self, number: int) -> NoReturn:
        """Exit immediately. The guard that commands are started through ends those that still run."""
        if self._transport is not None:
            self._transport.close()
        os._exit(INTERRUPTED if number == signal.SIGINT else TERMINATED)

    @property
    def is_signaled(self) -> bool:
        return self._signal is not None

    def exit_code(self) -> int:
        """Return 143 after SIGTERM or SIGHUP; 0 after SIGINT or for a server; else what the last result says.

        Without a result, it is 1 if a line could not be read.
        """
        if self._signal in (signal.SIGTERM, signal.SIGHUP):
            return TERMINATED
        if self._signal == signal.SIGINT or self._is_server:
            return 0
        last = self._session.runner.last_result
        if last is None:
            return 1 if self._session.control.has_refused else 0
        if last.is_error is not True:
            return 0
        return DENIED if last.terminal_reason == "permission_denied" else 1


def cannot_open(run: SessionRun, exc: StartRefused | UsageError, *, is_awaited: bool) -> int:
    """Report that the session cannot be opened: on stderr, and to a client that reads messages as a result.

    Raises a UsageError again if no client is waiting for a response yet.
    """
    if isinstance(exc, UsageError) and not is_awaited:
        raise exc
    error, reason = str(exc), (exc.reason if isinstance(exc, StartRefused) else None) or UNSET
    warn(error)
    options, clock = run.options, run.clock
    session_id = options.resume or options.session_id or clock.new_uuid()
    if run.is_server:
        from parley.cli.handshake import reject

        reject(run.connection, run.received, error, session_id, clock)
    elif options.output_format in ("stream-json", "message", "json"):
        from parley.engine.turn.outcome import no_session_result

        write(run.connection.send(no_session_result(error, session_id, clock, startup_failure_reason=reason)))
    return 1
