"""Send a result after Ctrl-C before the session is opened, as the dialect spec001 requires.

    with answer_interrupts(options) as woken:
        data = read_stdin(needed=True, woken=woken)

The signal handler stays installed until the session replaces it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from parley.cli.stdio import write
from parley.compose.registry import make_dialect
from parley.engine.clock import Clock
from parley.engine.session.no_session import no_session_result
from parley.protocol.connection import Connection, Role
from parley.protocol.options import CliOptions

REASON = "Cancelled by the user before a prompt was received"


@contextmanager
def answer_interrupts(options: CliOptions) -> Iterator[int]:
    """Yield a descriptor that becomes readable after the signal, because a read that has just started ignores it."""
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
