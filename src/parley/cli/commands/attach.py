"""`parley attach`: print the messages of a session, then follow new ones.

Every record of a session has a sequence number. The output is byte-equal to what clients received, whether the
session is still running or not. Attaching only reads; it does not lock the session.

See also: `sdk/attach.py`, the same for Python programs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import msgspec

from parley.cli.stdio import warn, write
from parley.compose.launch_context import LaunchContext, working_directory
from parley.compose.stores import SessionStores
from parley.errors import UsageError
from parley.protocol.base import Message, convert, encode_json
from parley.protocol.messages.conversation import Assistant, User
from parley.protocol.messages.result import Result
from parley.protocol.options import CliOptions, parse
from parley.stores.base import Entry, Store

USAGE = """\
usage: parley attach SESSION [--after SEQ] [--no-follow] [--numbered] [session options]

Print the messages of a session, then follow new ones until no process holds the session.

  --after SEQ   only messages with a sequence number above SEQ
  --no-follow   print the stored messages and exit
  --numbered    put the sequence number and a tab before each line"""
LINES: dict[str, type[Message]] = {"user": User, "assistant": Assistant, "result": Result}
POLL_SECONDS = 0.05
IDLE_RATIO = 5
"""Sleep at least this many times as long as a poll took, so that long sessions do not keep a core busy."""


def main(argv: list[str]) -> int:
    """Raises UsageError or SessionError."""
    if "--help" in argv or "-h" in argv:
        return 0 if write(f"{USAGE}\n".encode()) else 1
    after, follow, numbered, rest = parse_args(argv)
    parsed = parse(rest)
    for warning in parsed.warnings:
        warn(warning)
    if len(parsed.words) != 1:
        raise UsageError(USAGE)
    (session_id,) = parsed.words
    for seq, line in iter_lines(open_store(parsed.options, session_id), session_id, after, follow=follow):
        if not write((b"%d\t" % seq if numbered else b"") + line + b"\n"):
            return 1
    return 0


def parse_args(argv: list[str]) -> tuple[int, bool, bool, list[str]]:
    """Split off the flags of this command; the rest are session options. Raises UsageError."""
    after, rest, words = -1, [], iter(argv)
    for word in words:
        name, is_joined, value = word.partition("=")
        if name == "--after":
            after = parse_number(value if is_joined else next(words, ""))
        elif word not in ("--no-follow", "--numbered"):
            rest.append(word)
    return after, "--no-follow" not in argv, "--numbered" in argv, rest


def parse_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"option '--after' requires a sequence number, not {text!r}") from None


def open_store(options: CliOptions, session_id: str) -> Store:
    basis = LaunchContext(options, dict(os.environ), working_directory())
    basis.warn = warn
    return SessionStores(basis).store(session_id)


def iter_lines(store: Store, session_id: str, after: int, *, follow: bool) -> Iterator[tuple[int, bytes]]:
    """Yield lines with their sequence numbers. Raises UnknownSession, SessionError."""
    while True:
        is_held, started = store.is_held(session_id), time.monotonic()
        for entry in store.read(session_id, after):
            after = entry.seq
            line = format_entry(entry)
            if line is not None:
                yield entry.seq, line
        if not (follow and is_held):
            return
        time.sleep(max(POLL_SECONDS, IDLE_RATIO * (time.monotonic() - started)))


def format_entry(entry: Entry) -> bytes | None:
    """Return the line that clients received, or None for a kind of entry that is never sent."""
    cls = LINES.get(entry.kind)
    if cls is None:
        return None
    try:
        # Use the field order of the message class; stores may order fields differently.
        return encode_json(convert(entry.message, cls))
    except msgspec.ValidationError:
        return encode_json(entry.message)
