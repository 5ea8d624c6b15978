"""Read and write the standard streams, whatever their state.

They may be closed, full, non-blocking, or have a reader that never reads. `write` and `read_stdin`
wait. `warn` never waits for stderr: a warning that does not fit is dropped, and the next one that
fits says how many were dropped.

At a terminal, text of models, tools and files must not act on it: both show control sequences as
escapes (`reveal`). Output to a pipe or a file is left as it is.
"""

from __future__ import annotations

import os
import stat
import sys

PIECE_BYTES = 4096
"""How much a writable pipe accepts without blocking (PIPE_BUF on Linux; POSIX guarantees 512)."""
CHUNK_BYTES = 64 * 1024
"""What a pipe holds. For more, malloc would map and unmap memory at each read."""
STDIN_WAIT_SECONDS = 3
OWN_STYLES = "(\x1b\\[(?:0|1|2|31|32|33)m)"
"""The control sequences of `cli/style.py`: bold, dim and colours. They hide nothing."""


def reopen_closed_streams() -> None:
    """Open /dev/null for each closed standard descriptor; otherwise the next opened file would get its number."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # os.open returns the lowest free descriptor, which is this one.
            opened = os.open(os.devnull, os.O_WRONLY if descriptor else os.O_RDONLY)
            os.set_inheritable(opened, True)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


class StderrWriter:
    """Writes lines to stderr without waiting."""

    def __init__(self, descriptor: int = 2) -> None:
        self._descriptor = descriptor
        self._lost = 0
        self._is_partial = False
        """Whether the last line was written only in part."""

    def __call__(self, text: str) -> None:
        note = f"({self._lost} earlier messages were dropped because stderr was not read)\n" if self._lost else ""
        import select

        start = "\n" if self._is_partial else ""
        text = reveal(text) if os.isatty(self._descriptor) else text
        data = f"{start}{note}{text}\n".encode(errors="replace")
        written = 0  # what fits; the rest is lost
        try:
            poll = select.poll()
            poll.register(self._descriptor, select.POLLOUT)
            while written < len(data) and poll.poll(0):
                written += os.write(self._descriptor, data[written : written + PIECE_BYTES])
        except OSError:
            pass
        is_whole = written == len(data)
        self._lost = 0 if is_whole else self._lost + 1
        self._is_partial = not is_whole and (self._is_partial or written > 0)


warn = StderrWriter()


def reveal(text: str) -> str:
    """The text for a terminal: with line ends and our own styles, and everything else that acts on it as escapes."""
    import re

    from parley.terminal.rendering.text import reveal_text

    parts = re.split(OWN_STYLES, text)
    return "".join(part if at % 2 else reveal_text(part) for at, part in enumerate(parts))


def write(data: bytes, descriptor: int = 1, *, raw: bool = False) -> bool:
    """Write all data, waiting for the reader if necessary; returns whether that succeeded.

    A closed pipe counts as success, because the reader wants no more. Other errors are reported on stderr.
    `raw`: the caller writes control sequences to a terminal, and has made everything else safe.
    """
    if not raw and os.isatty(descriptor):
        data = reveal(data.decode(errors="replace")).encode(errors="replace")
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            wait_until_ready(descriptor, to_write=True)
        except BrokenPipeError:
            return True
        except OSError as exc:
            warn(f"Error: cannot write {('stdin', 'stdout', 'stderr')[descriptor]}: {exc.strerror}")
            return False
    return True


def read_stdin(*, is_awaited: bool = False, woken: int | None = None) -> bytes | None:
    """Read all of stdin. Raises OSError.

    Many clients leave stdin open and write nothing: returns None if no data arrives in time, unless it is awaited.

    `woken` is a descriptor that becomes readable after a signal, so that the handler is called between two reads.
    """
    mode = os.fstat(0).st_mode
    can_block = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
    may_wait = can_block and not is_awaited
    if may_wait and not wait_until_ready(0, to_write=False, seconds=STDIN_WAIT_SECONDS, woken=woken):
        return None
    chunks: list[bytes] = []
    while True:
        try:
            if can_block and woken is not None:
                wait_until_ready(0, to_write=False, woken=woken)
            chunk = os.read(0, CHUNK_BYTES)
        except BlockingIOError:
            wait_until_ready(0, to_write=False)
            continue
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)


def wait_until_ready(
    descriptor: int, *, to_write: bool, seconds: float | None = None, woken: int | None = None
) -> bool:
    """Wait until a descriptor can be read or written, or `woken` can be read; returns False after a timeout."""
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLOUT if to_write else select.POLLIN)
    if woken is not None:
        poll.register(woken, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


def restore_sigint() -> None:
    """Let Ctrl-C end the process while no session handles it.

    Python's default handler only sets a flag, so a read or write that starts at that moment would block forever.
    """
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
