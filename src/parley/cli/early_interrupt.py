"""Ctrl-C before there is a session: in document 001 that, too, has a result.

    with waiting(options) as woken:
        data = read_stdin(needed=True, woken=woken)

The handler stays when the wait is over: the session sets one of its own when it is there.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from parley.cli.stdio import write
from parley.compose.registry import dialect
from parley.engine.clock import Stamp
from parley.engine.session.no_session import no_session
from parley.protocol.connection import Connection
from parley.protocol.options import Options
from parley.protocol.roles import Role

WORDS = "Cancelled by the user before there was a prompt"


@contextmanager
def waiting(options: Options) -> Iterator[int]:
    """A descriptor that can be read when the signal has come: a read that had just begun would not notice it."""
    stamp = Stamp()
    connection = Connection(Role.ENGINE, dialect(options, stamp))

    def leave(_number: int, _frame: object) -> NoReturn:
        session_id = options.resume or options.session_id or stamp.new_uuid()
        write(connection.send(no_session(WORDS, session_id, stamp, terminal_reason="aborted_streaming")))
        os._exit(0)

    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGINT, leave)
    before = signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    try:
        yield woken
    finally:
        signal.set_wakeup_fd(before)
        os.close(wakes)
        os.close(woken)
