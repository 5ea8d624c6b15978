"""Handle messages that arrive before the session is opened.

A client of `--stdio` may poll the status many times before its first prompt, and opening a large
database takes time. The session is therefore opened for the first message that needs it, or immediately
for a client that runs tools and resumes a session. The dialect may be known only after the first line.

    pending = accept(options)                   None if the client closed stdin first
    pending.options, pending.connection         with the dialect that was detected
    pending.messages                            messages for the session
    reject(…)                                   answer them if the session cannot be opened
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain

from parley._launched import end_if_killed
from parley.cli.stdio import CHUNK_BYTES, wait_until_ready, write
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
from parley.errors import SessionError, UsageError
from parley.protocol.base import UNSET, Message, Refused, Struct
from parley.protocol.connection import Connection, Role
from parley.protocol.dialects.base import Reply
from parley.protocol.framing import BOM, INBOUND_CAP
from parley.protocol.messages.control import ControlRequest, ControlResponse, Failure, Success
from parley.protocol.messages.conversation import User
from parley.protocol.messages.dialects import HostThere, SessionOpened, SystemFault
from parley.protocol.messages.requests import Interrupt
from parley.protocol.options import CliOptions


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
    return answer_without_session(options, clock, received)


def with_dialect(options: CliOptions, received: bytes) -> CliOptions:
    """Return the options with the dialect of the first line."""
    from parley.protocol.dialects.detect import detect

    line = next((line for line in split_lines(received) if line), b"")
    name = detect(line, STDIO_DIALECT if options.stdio else DEFAULT_DIALECT)
    over_stdio = load_dialect(name).profile.over_stdio
    if options.dialect is None:  # `--stdio` alone allows only the dialects over stdio
        return options.replace(dialect=name if over_stdio else STDIO_DIALECT)
    if over_stdio:
        return options.replace(dialect=name)
    return options.replace(dialect=name, input_format="stream-json", output_format="stream-json", verbose=True)


def answer_without_session(options: CliOptions, clock: Clock, received: bytes) -> PendingConnection | None:
    """Answer messages until one needs a session. Raises UsageError."""
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
    from parley.engine.session.no_session import no_session_result

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
