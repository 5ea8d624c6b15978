"""`parley attach`: the lines of a session that somebody missed, then those that come.

Every record of a session has a number. What is printed is what was told, byte for byte: whether a line is read
while the session runs or a year later makes no difference. Nothing is written, and nobody is kept from the session.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import msgspec

from parley.cli.stdio import complain, write
from parley.compose.launch_context import Basis, working_directory
from parley.compose.stores import Sessions
from parley.errors import UsageError
from parley.protocol.base import Message, convert, spell
from parley.protocol.messages.conversation import Assistant, User
from parley.protocol.messages.result import Result
from parley.protocol.options import Options, parse
from parley.stores.base import Entry, Store

USAGE = """\
usage: parley attach SESSION [--after SEQ] [--no-follow] [--numbered] [options of a session]

Prints the lines of a session with a number above SEQ (all by default), then those that are added, until nobody
holds the session any more. --no-follow ends with what is there. --numbered puts its number and a tab before each."""
LINES: dict[str, type[Message]] = {"user": User, "assistant": Assistant, "result": Result}
LOOK_SECONDS = 0.05
SHARE = 5
"""To look for news takes at most one part in so many of our time, however long the session is."""


def main(argv: list[str]) -> int:
    """Raises UsageError or SessionError."""
    if "--help" in argv or "-h" in argv:
        return 0 if write(f"{USAGE}\n".encode()) else 1
    after, follow, numbered, rest = taken(argv)
    parsed = parse(rest)
    for warning in parsed.warnings:
        complain(warning)
    if len(parsed.words) != 1:
        raise UsageError(USAGE)
    (session_id,) = parsed.words
    for seq, line in lines(opened(parsed.options, session_id), session_id, after, follow=follow):
        if not write((b"%d\t" % seq if numbered else b"") + line + b"\n"):
            return 1
    return 0


def taken(argv: list[str]) -> tuple[int, bool, bool, list[str]]:
    """Our own flags, off the command line: the rest is read as a session reads it. Raises UsageError."""
    after, rest, words = -1, [], iter(argv)
    for word in words:
        name, is_joined, value = word.partition("=")
        if name == "--after":
            after = number(value if is_joined else next(words, ""))
        elif word not in ("--no-follow", "--numbered"):
            rest.append(word)
    return after, "--no-follow" not in argv, "--numbered" in argv, rest


def number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"option '--after' needs the number of a record, not {text!r}") from None


def opened(options: Options, session_id: str) -> Store:
    basis = Basis(options, dict(os.environ), working_directory())
    basis.complain = complain
    return Sessions(basis).store(session_id)


def lines(store: Store, session_id: str, after: int, *, follow: bool) -> Iterator[tuple[int, bytes]]:
    """The lines with their numbers, as they come. Raises UnknownSession, SessionError."""
    while True:
        is_held, begun = store.is_held(session_id), time.monotonic()
        for entry in store.read(session_id, after):
            after = entry.seq
            line = spelled(entry)
            if line is not None:
                yield entry.seq, line
        if not (follow and is_held):
            return
        time.sleep(max(LOOK_SECONDS, SHARE * (time.monotonic() - begun)))


def spelled(entry: Entry) -> bytes | None:
    """An entry as it was told; None for what is never told."""
    cls = LINES.get(entry.kind)
    if cls is None:
        return None
    try:
        # The order of the fields is that of the message, in whatever order a layout has them.
        return spell(convert(entry.message, cls))
    except msgspec.ValidationError:
        return spell(entry.message)
