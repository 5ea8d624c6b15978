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

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.network.gateway_client import attach_remote, is_url
from parley.cli.commands.subcommand import GivenArgs, run_command
from parley.cli.stdio import warn, write
from parley.compose.launch_context import LaunchContext, working_directory
from parley.compose.stores import SessionStores
from parley.errors import InvalidArguments
from parley.protocol.base import Message, convert, encode_json
from parley.protocol.messages.conversation import Assistant, User
from parley.protocol.messages.result import Result
from parley.stores.base import Entry, Store

LINES: dict[str, type[Message]] = {"user": User, "assistant": Assistant, "result": Result}
POLL_SECONDS = 0.05
IDLE_RATIO = 5
"""Sleep at least this many times as long as a poll took, so that long sessions do not keep a core busy."""


def main(argv: list[str]) -> int:
    """Raises UsageError or SessionError."""
    return run_command(COMMANDS["attach"], argv, {"": attach})


def attach(given: GivenArgs) -> int:
    after = parse_sequence(given.one("after", "-1"))
    if is_url(given.words[0]):
        return attach_remote(given, after)
    basis = LaunchContext(given.options, dict(os.environ), working_directory())
    basis.warn = warn
    sessions = SessionStores(basis)
    session_id = sessions.find(given.words[0])
    for seq, line in iter_lines(sessions.store(session_id), session_id, after, follow=not given.has("no-follow")):
        if not write((b"%d\t" % seq if given.has("numbered") else b"") + line + b"\n"):
            return 1
    return 0


def parse_sequence(text: str) -> int:
    """Raises InvalidArguments."""
    try:
        return int(text)
    except ValueError:
        raise InvalidArguments(f"option '--after' requires a sequence number, not {text!r}") from None


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
