"""The three standard streams, in whatever state the process was given them.

They may be closed, full, set not to block, or lead to somebody who never reads. stdout
and stdin are waited for where there is nothing else to do; stderr never is: a complaint
that does not fit is dropped and counted, and the next one that fits tells how many were lost.
"""

from __future__ import annotations

import os
import stat
import sys

PIECE_BYTES = 4096
"""What a pipe that can be written at all takes without blocking (PIPE_BUF on Linux; POSIX says 512 or more)."""
CHUNK_BYTES = 256 * 1024
STDIN_PATIENCE_SECONDS = 3


def mend() -> None:
    """Put /dev/null where a standard descriptor is closed: the next file to be opened would take its place."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number is taken, which is this one.
            opened = os.open(os.devnull, os.O_WRONLY if descriptor else os.O_RDONLY)
            os.set_inheritable(opened, True)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


class Complaints:
    """Lines to stderr that nobody waits for."""

    def __init__(self, descriptor: int = 2) -> None:
        self._descriptor = descriptor
        self._lost = 0
        self._broken_off = False

    def __call__(self, text: str) -> None:
        note = f"({self._lost} earlier complaints were lost: nobody read them)\n" if self._lost else ""
        start = "\n" if self._broken_off else ""
        whole = f"{start}{note}{text}\n".encode(errors="replace")
        left = self._push(whole)
        self._lost = self._lost + 1 if left else 0
        self._broken_off = bool(left) and (self._broken_off or len(left) < len(whole))

    def _push(self, data: bytes) -> bytes:
        """Write what fits; returns the rest."""
        import select

        try:
            poll = select.poll()
            poll.register(self._descriptor, select.POLLOUT)
            while data and poll.poll(0):
                data = data[os.write(self._descriptor, data[:PIECE_BYTES]) :]
        except OSError:
            pass
        return data


complain = Complaints()


def write(data: bytes, descriptor: int = 1) -> bool:
    """Write all of it, however long the reader takes; whether that went well.

    A reader who left has seen what he wanted to see. Anything else is complained about.
    """
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            wait_for(descriptor, to_write=True)
        except BrokenPipeError:
            return True
        except OSError as flaw:
            complain(f"Error: {('stdin', 'stdout', 'stderr')[descriptor]} cannot be written: {flaw.strerror}")
            return False
    return True


def read_stdin(*, needed: bool, woken: int | None = None) -> bytes | None:
    """All of stdin; None if it is not needed and nothing comes from it in time. Raises OSError.

    `woken` is a descriptor that can be read when a signal has come: its handler is called between two reads.
    """
    mode = os.fstat(0).st_mode
    waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
    if waits and not needed and not wait_for(0, to_write=False, seconds=STDIN_PATIENCE_SECONDS, woken=woken):
        return None
    chunks: list[bytes] = []
    while True:
        try:
            if waits and woken is not None:
                wait_for(0, to_write=False, woken=woken)
            chunk = os.read(0, CHUNK_BYTES)
        except BlockingIOError:
            wait_for(0, to_write=False)
            continue
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)


def wait_for(descriptor: int, *, to_write: bool, seconds: float | None = None, woken: int | None = None) -> bool:
    """Wait until it can be read or written, or `woken` can be read; whether that came in time."""
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLOUT if to_write else select.POLLIN)
    if woken is not None:
        poll.register(woken, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))
