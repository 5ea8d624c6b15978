"""`parley attach`: continue a session at the terminal, or print its messages and follow new ones.

At a terminal, it opens a conversation: with a session of a gateway, which stays there, or with one of this machine. A
local session that another process holds can only be watched. Otherwise, and with an option about lines, it prints
messages.

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
from parley.cli.commands.network.gateway_client import attach_remote, find_token, is_url
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
    converses = wants_conversation(given)
    if is_url(given.words[0]) and converses:
        from parley.cli.terminal.conversation import attach_to_gateway

        return attach_to_gateway(given.options, given.words[0].rstrip("/"), find_token(given))
    if is_url(given.words[0]):
        return attach_remote(given, after)
    basis = LaunchContext(given.options, dict(os.environ), working_directory())
    basis.warn = warn
    sessions = SessionStores(basis)
    session_id = sessions.find(given.words[0])
    if converses:
        from parley.cli.terminal.conversation import follow, start_conversation

        if not sessions.store(session_id).is_held(session_id):
            return start_conversation(given.options.replace(resume=session_id))
        return follow(iter_lines(sessions.store(session_id), session_id, after, follow=True))
    for seq, line in iter_lines(sessions.store(session_id), session_id, after, follow=not given.has("no-follow")):
        if not write((b"%d\t" % seq if given.has("numbered") else b"") + line + b"\n"):
            return 1
    return 0


def wants_conversation(given: GivenArgs) -> bool:
    """Whether a person attaches. Options about lines are for programs."""
    from parley.cli.main import can_converse

    is_about_lines = given.has("no-follow") or given.has("numbered") or given.one("after", "") != ""
    return os.isatty(0) and os.isatty(1) and not is_about_lines and can_converse(given.options)


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
