"""The event loop of all workspace connections of this process, in a thread of its own.

Files are read by worker threads, permissions are decided on the engine's loop, and both may have to wait for the
workspace. On a loop of its own the connection lives through either, and answers pings.
"""

from __future__ import annotations

import asyncio
import os
import threading

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def get_loop() -> asyncio.AbstractEventLoop:
    """The running loop; started at the first use."""
    global _loop  # one thread for the process, as in parley/_threads.py
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="parley-workspace", daemon=True).start()
        return _loop


def _forget() -> None:
    """A child process does not have the thread."""
    global _loop
    _loop = None


os.register_at_fork(after_in_child=_forget)
