"""What a dialect may do behind a connection."""

from __future__ import annotations

from typing import ClassVar

from parley.protocol.base import Message, Refused, Role, decode
from parley.protocol.connection import Connection
from parley.protocol.dialects.base import DialectProfile, Reply, StreamJson
from parley.protocol.messages.dialects import DIALECT_EVENTS, Injected, Queued, SessionOpened, SystemFault
from parley.protocol.messages.notices import KeepAlive


class Parrot:
    """Answers `?` by itself with what it heard so far, and says twice what it says."""

    name = "parrot"
    can_request = False
    profile: ClassVar[DialectProfile] = DialectProfile()

    def __init__(self) -> None:
        self.heard = 0

    def decode(self, line: bytes) -> list[Message]:
        if line == b"?":
            return [Reply(lines=[b"%d" % self.heard])]
        self.heard += 1
        return [KeepAlive(), decode(line)]

    def encode(self, message: Message) -> list[bytes]:
        return [b"caw", b"caw"]


def test_a_line_may_say_several_messages_and_a_reply_passes_the_rules() -> None:
    engine = Connection(Role.ENGINE, Parrot())

    heard = engine.receive(b'{"type":"keep_alive"}\n?\n')

    assert heard == [KeepAlive(), KeepAlive(), Reply(lines=[b"1"])]


def test_every_message_of_a_line_is_judged_for_itself() -> None:
    engine = Connection(Role.ENGINE, Parrot())

    heard = engine.receive(b'{"type":"result","subtype":"success"}\n')

    assert heard == [KeepAlive(), Refused(reason="the host must not send Result", kind="result")]


def test_a_line_is_looked_at_only_when_the_one_before_was_taken() -> None:
    parrot = Parrot()
    engine = Connection(Role.ENGINE, parrot)
    heard = engine.iter_messages(b'?\n{"type":"keep_alive"}\n')

    next(heard)

    assert parrot.heard == 0


def test_a_message_may_take_several_lines() -> None:
    assert Connection(Role.ENGINE, Parrot()).send(KeepAlive()) == b"caw\ncaw\n"


def test_the_canonical_dialect_says_nothing_of_notes() -> None:
    engine = Connection(Role.ENGINE, StreamJson())
    notes = [
        SessionOpened(session_id="s1"),
        Queued(position=1),
        Injected(message_count=1, content_length=2),
        SystemFault(message="no"),
    ]

    assert {type(note) for note in notes} <= DIALECT_EVENTS
    assert b"".join(map(engine.send, notes)) == b""
