"""Run a server or a long task until a signal arrives."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


async def run_until_signal(work: Coroutine[Any, Any, object]) -> int:
    """Run it; returns the signal that cancelled it, or 0. A signal that the caller ignores, as nohup does, stays so."""
    loop, running = asyncio.get_running_loop(), asyncio.ensure_future(work)
    ended_by: list[int] = []

    def end(number: int) -> None:
        ended_by.append(number)
        running.cancel()

    signals = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in signals:
        loop.add_signal_handler(number, end, number)
    try:
        await running
    except asyncio.CancelledError:
        if not ended_by:
            raise
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
    return ended_by[0] if ended_by else 0
