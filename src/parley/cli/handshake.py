"""What happens before the session is opened: messages that arrive early, `initialize` first, Ctrl-C.

    pending = accept(options)                   None if the client closed stdin first
    pending.options, pending.connection         with the dialect that was detected
    pending.messages                            messages for the session
    reject(…)                                   answer them if the session cannot be opened

A client of `--stdio` may poll the status many times before its first prompt, and opening a large
database takes time. The session is therefore opened for the first message that needs it, or immediately
for a client that runs tools and resumes a session. The dialect may be known only after the first line.

`receive_initialize` reads `initialize` first, because it can deliver plugins, MCP servers and managed settings.
`--await-initialize` makes it the first line. `--managed-settings-in-initialize` also requires its `managedSettings`,
which then have the same effect as `--managed-settings`. A client that sends something else gets an error result.

`answer_interrupts` sends a result after Ctrl-C, as the dialect spec001 requires. Its signal handler stays installed
until the session replaces it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import NoReturn

import msgspec

from parley._launched import end_if_killed
from parley.cli.process_secrets import erase
from parley.cli.stdio import CHUNK_BYTES, wait_until_ready, warn, write
from parley.compose.registry import (
    AUTO,
    DEFAULT_DIALECT,
    STDIO_DIALECT,
    get_profile,
    load_dialect,
    make_dialect,
)
from parley.compose.single_session import resolve_session
from parley.engine.clock import Clock
from parley.errors import SessionError, StartRefused, UsageError
from parley.protocol.base import UNSET, Json, Message, Refused, Role, Struct
from parley.protocol.connection import Connection
from parley.protocol.dialects.base import Reply, detect
from parley.protocol.framing import BOM, INBOUND_CAP
from parley.protocol.messages.control import ControlRequest, ControlResponse, Failure, Success
from parley.protocol.messages.conversation import User
from parley.protocol.messages.dialects import HostThere, SessionOpened, SystemFault
from parley.protocol.messages.requests import Initialize, Interrupt
from parley.protocol.options import CliOptions

NOT_FIRST = "initialize_not_first"
NOT_DELIVERED = "managed_settings_not_delivered"
REASON = "Cancelled by the user before a prompt was received"


class PendingConnection(Struct, frozen=True):
    """A connection whose first message needs a session."""

    options: CliOptions
    connection: Connection
    messages: Iterator[Message]


def accept(options: CliOptions) -> PendingConnection | None:
    """Detect the dialect and answer what needs no session. Raises UsageError."""
    clock, received = Clock(), b""
    if options.dialect in (None, AUTO):
        received = first_line()
        options = with_dialect(options, received)
    if not get_profile(options).over_stdio:
        connection = Connection(Role.ENGINE, make_dialect(options, clock))
        return PendingConnection(options, connection, connection.iter_messages(received))
    # Answer messages until one needs a session.
    received = received or next(chunks(), b"")
    if not received:
        return None
    options = with_session(options, clock)
    dialect = make_dialect(options, clock)
    connection = Connection(Role.ENGINE, dialect)
    dialect.encode(SessionOpened(session_id=options.resume or options.session_id or ""))
    for messages in iter_message_batches(connection, received):
        first = write_replies(messages)
        if first is not None:
            return PendingConnection(options, connection, chain([first], messages))
        if wait_until_ready(0, to_write=False, seconds=0):
            continue
        # In a resumed session, a call may be waiting for this client, which must receive it to answer.
        if options.client_tools and options.resume and dialect.profile.client_tools == "always":
            return PendingConnection(options, connection, iter([HostThere()]))
        preload()
    return None


def with_dialect(options: CliOptions, received: bytes) -> CliOptions:
    """Return the options with the dialect of the first line."""
    line = next((line for line in split_lines(received) if line), b"")
    name = detect(line, STDIO_DIALECT if options.stdio else DEFAULT_DIALECT)
    over_stdio = load_dialect(name).profile.over_stdio
    if options.dialect is None:  # `--stdio` alone allows only the dialects over stdio
        return options.replace(dialect=name if over_stdio else STDIO_DIALECT)
    if over_stdio:
        return options.replace(dialect=name)
    return options.replace(dialect=name, input_format="stream-json", output_format="stream-json", verbose=True)


def iter_message_batches(connection: Connection, received: bytes) -> Iterator[Iterator[Message]]:
    """Yield the messages of each chunk of stdin, until its end. Raises UsageError."""
    yield connection.iter_messages(received)
    for chunk in chunks():
        yield connection.iter_messages(chunk)
    yield iter(connection.end())


def write_replies(messages: Iterator[Message]) -> Message | None:
    """Write replies up to the first message that needs a session; returns that message."""
    for message in messages:
        if not isinstance(message, Reply):
            return message
        write(b"".join(line + b"\n" for line in message.lines))
    return None


def reject(connection: Connection, received: Iterable[Message], error: str, session_id: str, clock: Clock) -> None:
    """Answer all messages received so far with the error, without waiting for more."""
    from parley.engine.turn.outcome import no_session_result  # a status is answered without the engine

    def answer(messages: Iterable[Message]) -> None:
        for message in messages:
            match message:
                case Reply(lines=lines):
                    write(b"".join(line + b"\n" for line in lines))
                case HostThere():
                    write(connection.send(SystemFault(message=error)))
                case User(uuid=uuid) | Refused(kind="user", uuid=uuid):
                    uuids = [uuid] if uuid else UNSET
                    write(connection.send(no_session_result(error, session_id, clock, uuids)))
                case ControlRequest(request_id=request_id, request=Interrupt()):  # nothing runs, so it succeeds
                    done = Success(request_id=request_id, response={"still_queued": []})
                    write(connection.send(ControlResponse(response=done)))
                case ControlRequest(request_id=request_id) | Refused(request_id=str() | int() as request_id):
                    refused = Failure(request_id=request_id, error=error, error_code="no_session")
                    write(connection.send(ControlResponse(response=refused)))
                case Refused(reason=reason):
                    details = {"type": "validation_error", "message": reason}
                    write(connection.send(SystemFault(message=reason, error=details)))

    answer(received)
    rest = chunks()
    while wait_until_ready(0, to_write=False, seconds=0) and (chunk := next(rest, b"")):
        answer(connection.iter_messages(chunk))
    answer(connection.end())


def preload() -> None:
    """Import the modules of a session while the client is idle."""
    from parley.cli import run  # noqa: F401


def with_session(options: CliOptions, clock: Clock) -> CliOptions:
    """Return the options with the session's id, which the client may ask for. Raises UsageError."""
    try:
        found = resolve_session(options, os.getcwd(), clock.new_uuid)
    except (SessionError, OSError):
        return options  # opening the session will raise it again and report it
    if found.session_id or found.resume or found.continue_conversation or found.no_session_persistence:
        return found
    return found.replace(session_id=clock.new_uuid())


def first_line() -> bytes:
    """Read stdin up to the end of the first non-empty line, the end of stdin, or the size limit."""
    received = bytearray()
    for chunk in chunks():
        received += chunk
        if (b"\n" in chunk and any(split_lines(received)[:-1])) or len(received) > INBOUND_CAP:
            break
    return bytes(received)


def split_lines(data: bytes | bytearray) -> list[bytes]:
    """Split into lines without a byte order mark and surrounding blanks, which the framer ignores too."""
    return [line.strip(b" \t\r") for line in bytes(data).removeprefix(BOM).split(b"\n")]


def chunks() -> Iterator[bytes]:
    """Yield the data of stdin, waiting if necessary. Raises UsageError."""
    while True:
        try:
            chunk = os.read(0, CHUNK_BYTES)
        except BlockingIOError:
            wait_until_ready(0, to_write=False)
            continue
        except OSError as exc:
            raise UsageError(f"cannot read stdin: {exc.strerror}") from None
        if not chunk:
            end_if_killed()
            return
        yield chunk


def receive_initialize(options: CliOptions) -> PendingConnection | None:
    """Wait for the request. None if the client sent something else, which was reported."""
    clock = Clock()
    connection = Connection(Role.ENGINE, make_dialect(options, clock))
    erase()  # the client may take its time
    try:
        check_delivery(options)
        received = first_line()
        messages = connection.iter_messages(received)
        first = next(messages, None) if len(received) <= INBOUND_CAP else None
        if first is None and len(received) <= INBOUND_CAP:  # a last line without its end
            messages = iter(connection.end())
            first = next(messages, None)
        messages = messages if first is None else chain([first], messages)
        return PendingConnection(with_delivered(options, first, received), connection, messages)
    except StartRefused as exc:
        from parley.engine.turn.outcome import no_session_result

        warn(f"Error: {exc}")
        session_id = options.resume or options.session_id or clock.new_uuid()
        if options.output_format in ("stream-json", "message"):
            failed = no_session_result(str(exc), session_id, clock, startup_failure_reason=exc.reason or UNSET)
            write(connection.send(failed))
        return None


def check_delivery(options: CliOptions) -> None:
    """Raises StartRefused if the command line cannot deliver the request first."""
    if options.input_format != "stream-json" or get_profile(options).over_stdio:
        flag, reason = "--await-initialize", NOT_FIRST
        if options.managed_settings_in_initialize:
            flag, reason = "--managed-settings-in-initialize", NOT_DELIVERED
        raise StartRefused(f"option '{flag}' needs --input-format stream-json", reason)
    if not options.managed_settings_in_initialize:
        return
    if not options.await_initialize:
        raise StartRefused("option '--managed-settings-in-initialize' needs --await-initialize", NOT_DELIVERED)
    if options.managed_settings is not None:
        text = "options '--managed-settings-in-initialize' and '--managed-settings' cannot be combined"
        raise StartRefused(text, NOT_DELIVERED)


def with_delivered(options: CliOptions, first: Message | None, received: bytes) -> CliOptions:
    """The options with the plugins, the servers and the managed settings of the request. Raises StartRefused."""
    needs_settings = options.managed_settings_in_initialize
    if first is None and not received and not needs_settings:
        return options  # the client has nothing to say
    if isinstance(first, Refused) and is_initialize(received):
        raise StartRefused(f"initialize: {first.reason}", NOT_DELIVERED if needs_settings else None)
    if not (isinstance(first, ControlRequest) and isinstance(first.request, Initialize)):
        found = describe(first, received)
        if needs_settings:
            text = "option '--managed-settings-in-initialize' needs the field managedSettings of an initialize request"
            raise StartRefused(f"{text}, but {found}", NOT_DELIVERED)
        text = "option '--await-initialize' needs the initialize request as the first line of stdin"
        raise StartRefused(f"{text}, but {found}", NOT_FIRST)
    request = first.request
    plugins = request.plugins if isinstance(request.plugins, list) else []
    with_servers = tuple(one.path for one in plugins if one.skipMcpDiscovery is not True)
    without_servers = tuple(one.path for one in plugins if one.skipMcpDiscovery is True)
    changes: Json = {}
    if with_servers:
        changes["plugin_dirs"] = (*(options.plugin_dirs or ()), *with_servers)
    if without_servers:
        changes["plugin_dirs_no_mcp"] = (*(options.plugin_dirs_no_mcp or ()), *without_servers)
    if request.mcpServers:
        config = msgspec.json.encode({"mcpServers": request.mcpServers}).decode()
        changes["mcp_config"] = (*(options.mcp_config or ()), config)
    if needs_settings:
        if not isinstance(request.managedSettings, dict):
            text = (
                "option '--managed-settings-in-initialize' needs an object in the field managedSettings of initialize"
            )
            raise StartRefused(text, NOT_DELIVERED)
        changes["managed_settings"] = msgspec.json.encode(request.managedSettings).decode()
    return options.replace(**changes)


def is_initialize(received: bytes) -> bool:
    """Whether the first line is an `initialize` request, if perhaps an invalid one."""
    try:
        line = msgspec.json.decode(received.lstrip().split(b"\n")[0], type=dict)
    except (msgspec.DecodeError, RecursionError):
        return False
    request = line.get("request")
    return isinstance(request, dict) and request.get("subtype") == "initialize"


def describe(first: Message | None, received: bytes) -> str:
    if first is None:
        return "the first line of stdin is too long" if received else "stdin ended without a line"
    if isinstance(first, Refused):
        return f"the first line of stdin was refused: {first.reason}"
    return "the first line of stdin is another message"


@contextmanager
def answer_interrupts(options: CliOptions) -> Iterator[int]:
    """Yield a descriptor that becomes readable after the signal, because a read that has just started ignores it."""
    from parley.engine.turn.outcome import no_session_result

    clock = Clock()
    connection = Connection(Role.ENGINE, make_dialect(options, clock))

    def exit_with_result(_number: int, _frame: object) -> NoReturn:
        session_id = options.resume or options.session_id or clock.new_uuid()
        write(connection.send(no_session_result(REASON, session_id, clock, terminal_reason="aborted_streaming")))
        os._exit(0)

    woken, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.signal(signal.SIGINT, exit_with_result)
    before = signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    try:
        yield woken
    finally:
        signal.set_wakeup_fd(before)
        os.close(wakeup)
        os.close(woken)
