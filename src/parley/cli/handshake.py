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

from parley.cli.stdio import CHUNK_BYTES, wait_for, write
from parley.compose.registry import OVER_STDIO, dialect, dialect_name
from parley.compose.single_session import with_conversation
from parley.engine.clock import Stamp
from parley.errors import SessionError, UsageError
from parley.protocol.base import UNSET, Message, Refused, Struct
from parley.protocol.connection import Connection
from parley.protocol.dialects.base import Reply
from parley.protocol.framing import BOM, INBOUND_CAP
from parley.protocol.messages.control import ControlRequest, ControlResponse, Failure, Success
from parley.protocol.messages.conversation import User
from parley.protocol.messages.dialects import HostThere, SessionOpened, SystemFault
from parley.protocol.messages.requests import Interrupt
from parley.protocol.options import Options
from parley.protocol.roles import Role


class Guest(Struct, frozen=True):
    options: Options
    connection: Connection
    messages: Iterator[Message]


def welcome(options: Options) -> Guest | None:
    """Hear the host out. Raises UsageError."""
    stamp, heard = Stamp(), b""
    if options.dialect in (None, "auto"):
        heard = first_line()
        options = spoken_in(options, heard)
    if dialect_name(options) not in OVER_STDIO:
        connection = Connection(Role.ENGINE, dialect(options, stamp))
        return Guest(options, connection, connection.received(heard))
    return converse(options, stamp, heard)


def spoken_in(options: Options, heard: bytes) -> Options:
    """The options with the dialect that the first line is in."""
    from parley.protocol.dialects.detect import recognise

    line = next((line for line in lines_of(heard) if line), b"")
    name = recognise(line, "miriad" if options.stdio else "stream-json")
    if options.dialect is None:  # `--stdio` alone leaves the choice between two
        return options.but(dialect=name if name in OVER_STDIO else "miriad")
    if name in OVER_STDIO:
        return options.but(dialect=name)
    return options.but(dialect=name, input_format="stream-json", output_format="stream-json", verbose=True)


def converse(options: Options, stamp: Stamp, heard: bytes) -> Guest | None:
    """Answer what needs no session, until something does. Raises UsageError."""
    heard = heard or next(chunks(), b"")
    if not heard:
        return None
    options = with_session(options, stamp)
    spoken = dialect(options, stamp)
    connection = Connection(Role.ENGINE, spoken)
    spoken.encode(SessionOpened(session_id=options.resume or options.session_id or ""))
    for coming in heard_out(connection, heard):
        first = answered(coming)
        if first is not None:
            return Guest(options, connection, chain([first], coming))
        if wait_for(0, to_write=False, seconds=0):
            continue
        if (
            options.client_tools and options.resume and spoken.name == "miriad"
        ):  # a call may wait for this host, who must hear of it to answer
            return Guest(options, connection, iter([HostThere()]))
        prepare()
    return None


def heard_out(connection: Connection, heard: bytes) -> Iterator[Iterator[Message]]:
    """What the host says, a chunk at a time, to its last word. Raises UsageError."""
    yield connection.received(heard)
    for chunk in chunks():
        yield connection.received(chunk)
    yield iter(connection.end())


def answered(messages: Iterator[Message]) -> Message | None:
    """Write the replies, up to the first message that is for a session."""
    for message in messages:
        if not isinstance(message, Reply):
            return message
        write(b"".join(line + b"\n" for line in message.lines))
    return None


def turn_away(connection: Connection, begun: Iterable[Message], flaw: str, session_id: str, stamp: Stamp) -> None:
    """There is no session: everything that the host has said by now is answered, and nothing is waited for."""
    from parley.engine.session.no_session import no_session

    def answer(messages: Iterable[Message]) -> None:
        for message in messages:
            match message:
                case Reply(lines=lines):
                    write(b"".join(line + b"\n" for line in lines))
                case HostThere():
                    write(connection.send(SystemFault(message=flaw)))
                case User(uuid=uuid) | Refused(kind="user", uuid=uuid):
                    named = [uuid] if uuid else UNSET
                    write(connection.send(no_session(flaw, session_id, stamp, named)))
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
    while wait_for(0, to_write=False, seconds=0) and (chunk := next(rest, b"")):
        answer(connection.received(chunk))
    answer(connection.end())


def prepare() -> None:
    """Load what a session needs while the host has nothing to say."""
    from parley.cli import run  # noqa: F401


def with_session(options: Options, stamp: Stamp) -> Options:
    """The options with the id of the session, which the host may ask for. Raises UsageError."""
    try:
        found = with_conversation(options, os.getcwd(), stamp.new_uuid)
    except (SessionError, OSError):
        return options  # whoever opens it will tell
    if found.session_id or found.resume or found.continue_conversation or found.no_session_persistence:
        return found
    return found.but(session_id=stamp.new_uuid())


def first_line() -> bytes:
    """What stdin gives up to the end of its first line, or its own end. A line that is too long is cut."""
    heard = bytearray()
    for chunk in chunks():
        heard += chunk
        if (b"\n" in chunk and any(lines_of(heard)[:-1])) or len(heard) > INBOUND_CAP:
            break
    return bytes(heard)


def lines_of(heard: bytes | bytearray) -> list[bytes]:
    """The lines without what the framer passes over too: a byte order mark in front, and blanks around."""
    return [line.strip(b" \t\r") for line in bytes(heard).removeprefix(BOM).split(b"\n")]


def chunks() -> Iterator[bytes]:
    """What stdin gives, waited for. Raises UsageError."""
    while True:
        try:
            chunk = os.read(0, CHUNK_BYTES)
        except BlockingIOError:
            wait_for(0, to_write=False)
            continue
        except OSError as flaw:
            raise UsageError(f"stdin cannot be read: {flaw.strerror}") from None
        if not chunk:
            return
        yield chunk
