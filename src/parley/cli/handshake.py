"""What happens before there is a session: the host is heard out, and what needs no session is answered.

A host of `--stdio` may ask for the status again and again before it says its first prompt, and its
database may be large. So the session is opened only for a line that needs it, or at once for a host
that runs tools and comes back. And which dialect is spoken may be known only by the first line.

    guest = welcome(options)             None if the host left without wanting anything
    guest.options, guest.connection      the dialect is certain by now
    guest.messages                       what was heard that is for the session
    turn_away(…)                         what happens to it if there can be none
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain

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
from parley.protocol.connection import Connection
from parley.protocol.dialects.base import Reply
from parley.protocol.framing import BOM, INBOUND_CAP
from parley.protocol.messages.control import ControlRequest, ControlResponse, Failure, Success
from parley.protocol.messages.conversation import User
from parley.protocol.messages.dialects import HostThere, SessionOpened, SystemFault
from parley.protocol.messages.requests import Interrupt
from parley.protocol.options import CliOptions
from parley.protocol.roles import Role


class PendingConnection(Struct, frozen=True):
    options: CliOptions
    connection: Connection
    messages: Iterator[Message]


def accept(options: CliOptions) -> PendingConnection | None:
    """Hear the host out. Raises UsageError."""
    stamp, heard = Clock(), b""
    if options.dialect in (None, AUTO):
        heard = first_line()
        options = with_dialect(options, heard)
    if not get_profile(options).over_stdio:
        connection = Connection(Role.ENGINE, make_dialect(options, stamp))
        return PendingConnection(options, connection, connection.iter_messages(heard))
    return answer_without_session(options, stamp, heard)


def with_dialect(options: CliOptions, heard: bytes) -> CliOptions:
    """The options with the dialect that the first line is in."""
    from parley.protocol.dialects.detect import detect

    line = next((line for line in split_lines(heard) if line), b"")
    name = detect(line, STDIO_DIALECT if options.stdio else DEFAULT_DIALECT)
    over_stdio = load_dialect(name).profile.over_stdio
    if options.dialect is None:  # `--stdio` alone leaves the choice between two
        return options.replace(dialect=name if over_stdio else STDIO_DIALECT)
    if over_stdio:
        return options.replace(dialect=name)
    return options.replace(dialect=name, input_format="stream-json", output_format="stream-json", verbose=True)


def answer_without_session(options: CliOptions, stamp: Clock, heard: bytes) -> PendingConnection | None:
    """Answer what needs no session, until something does. Raises UsageError."""
    heard = heard or next(chunks(), b"")
    if not heard:
        return None
    options = with_session(options, stamp)
    spoken = make_dialect(options, stamp)
    connection = Connection(Role.ENGINE, spoken)
    spoken.encode(SessionOpened(session_id=options.resume or options.session_id or ""))
    for coming in iter_message_batches(connection, heard):
        first = write_replies(coming)
        if first is not None:
            return PendingConnection(options, connection, chain([first], coming))
        if wait_until_ready(0, to_write=False, seconds=0):
            continue
        if (
            options.client_tools and options.resume and spoken.profile.client_tools == "always"
        ):  # a call may wait for this host, who must hear of it to answer
            return PendingConnection(options, connection, iter([HostThere()]))
        preload()
    return None


def iter_message_batches(connection: Connection, heard: bytes) -> Iterator[Iterator[Message]]:
    """What the host says, a chunk at a time, to its last word. Raises UsageError."""
    yield connection.iter_messages(heard)
    for chunk in chunks():
        yield connection.iter_messages(chunk)
    yield iter(connection.end())


def write_replies(messages: Iterator[Message]) -> Message | None:
    """Write the replies, up to the first message that is for a session."""
    for message in messages:
        if not isinstance(message, Reply):
            return message
        write(b"".join(line + b"\n" for line in message.lines))
    return None


def reject(connection: Connection, begun: Iterable[Message], flaw: str, session_id: str, stamp: Clock) -> None:
    """There is no session: everything that the host has said by now is answered, and nothing is waited for."""
    from parley.engine.session.no_session import no_session_result

    def answer(messages: Iterable[Message]) -> None:
        for message in messages:
            match message:
                case Reply(lines=lines):
                    write(b"".join(line + b"\n" for line in lines))
                case HostThere():
                    write(connection.send(SystemFault(message=flaw)))
                case User(uuid=uuid) | Refused(kind="user", uuid=uuid):
                    named = [uuid] if uuid else UNSET
                    write(connection.send(no_session_result(flaw, session_id, stamp, named)))
                case ControlRequest(request_id=asked, request=Interrupt()):  # nothing runs, so it is done
                    done = Success(request_id=asked, response={"still_queued": []})
                    write(connection.send(ControlResponse(response=done)))
                case ControlRequest(request_id=asked) | Refused(request_id=str() | int() as asked):
                    refused = Failure(request_id=asked, error=flaw, error_code="no_session")
                    write(connection.send(ControlResponse(response=refused)))
                case Refused(reason=reason):
                    error = {"type": "validation_error", "message": reason}
                    write(connection.send(SystemFault(message=reason, error=error)))

    answer(begun)
    rest = chunks()
    while wait_until_ready(0, to_write=False, seconds=0) and (chunk := next(rest, b"")):
        answer(connection.iter_messages(chunk))
    answer(connection.end())


def preload() -> None:
    """Load what a session needs while the host has nothing to say."""
    from parley.cli import run  # noqa: F401


def with_session(options: CliOptions, stamp: Clock) -> CliOptions:
    """The options with the id of the session, which the host may ask for. Raises UsageError."""
    try:
        found = resolve_session(options, os.getcwd(), stamp.new_uuid)
    except (SessionError, OSError):
        return options  # whoever opens it will tell
    if found.session_id or found.resume or found.continue_conversation or found.no_session_persistence:
        return found
    return found.replace(session_id=stamp.new_uuid())


def first_line() -> bytes:
    """What stdin gives up to the end of its first line, or its own end. A line that is too long is cut."""
    heard = bytearray()
    for chunk in chunks():
        heard += chunk
        if (b"\n" in chunk and any(split_lines(heard)[:-1])) or len(heard) > INBOUND_CAP:
            break
    return bytes(heard)


def split_lines(heard: bytes | bytearray) -> list[bytes]:
    """The lines without what the framer passes over too: a byte order mark in front, and blanks around."""
    return [line.strip(b" \t\r") for line in bytes(heard).removeprefix(BOM).split(b"\n")]


def chunks() -> Iterator[bytes]:
    """What stdin gives, waited for. Raises UsageError."""
    while True:
        try:
            chunk = os.read(0, CHUNK_BYTES)
        except BlockingIOError:
            wait_until_ready(0, to_write=False)
            continue
        except OSError as exc:
            raise UsageError(f"stdin cannot be read: {exc.strerror}") from None
        if not chunk:
            return
        yield chunk
