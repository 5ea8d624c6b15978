"""A program of ours whose output is taken as it comes: started, heard, and ended.

    heard = await hear(lambda out, err: subprocess.Popen(argv, stdout=out, stderr=err), take, timeout_seconds=20)

`take` gets the output in pieces and says whether it wants more; if not, or at the deadline, or if the caller is
cancelled, the program is killed. Not here: commands of a model, which leave families behind (process/processes.py).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import ExitStack, aclosing, contextmanager, suppress
from typing import TYPE_CHECKING

from parley.protocol.base import Struct

if TYPE_CHECKING:
    import subprocess

PIPE_BYTES = 1 << 20
SMALL_BYTES = 1 << 15
GATHERING_SECONDS = 0.005
COMPLAINT_BYTES = 1 << 14


class Heard(Struct, frozen=True, kw_only=True):
    code: int
    """Negative for a signal."""
    complaint: str
    """The beginning of what it wrote to stderr."""
    stopped: bool
    """No more output was wanted."""
    timed_out: bool


async def hear(
    start: Callable[[int, int], subprocess.Popen[bytes]], take: Callable[[bytes], bool], *, timeout_seconds: float
) -> Heard:
    """Run a program, given where to write, to its end. Raises what `start` raises."""
    with ExitStack() as open_ends:
        heard, said = wide_pipe(open_ends)
        complained, complaining = wide_pipe(open_ends)
        with closing(said), closing(complaining):
            process = start(said, complaining)
        complaint = asyncio.create_task(beginning(complained))
        stopped = timed_out = False
        try:
            async with asyncio.timeout(timeout_seconds):
                async with aclosing(chunks(heard)) as pieces:
                    async for piece in pieces:
                        if not take(piece):
                            stopped = True
                            break
                if not stopped:
                    await asyncio.to_thread(process.wait)
        except TimeoutError:
            timed_out = True
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            code = await asyncio.to_thread(process.wait)
            words = await complaint
    return Heard(code=code, complaint=words, stopped=stopped, timed_out=timed_out)


def wide_pipe(open_ends: ExitStack) -> tuple[int, int]:
    """A pipe that holds a good deal, where the system has such. Its reading end is closed with `open_ends`."""
    import fcntl

    reading, writing = os.pipe()
    open_ends.enter_context(closing(reading))
    with suppress(OSError, AttributeError):
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return reading, writing


@contextmanager
def closing(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)


async def chunks(descriptor: int) -> AsyncGenerator[bytes, None]:
    """What comes through a pipe, to its end.

    A search program writes once for every file. To wake up for each would cost more than the
    search, so after a small piece we let some more gather.
    """
    loop = asyncio.get_running_loop()
    while True:
        ready = asyncio.Event()
        loop.add_reader(descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(descriptor)
        chunk = os.read(descriptor, PIPE_BYTES)
        if not chunk:
            return
        yield chunk
        if len(chunk) < SMALL_BYTES:
            await asyncio.sleep(GATHERING_SECONDS)


async def beginning(descriptor: int) -> str:
    """The first part of what comes through a pipe, which is read to its end."""
    kept = bytearray()
    async with aclosing(chunks(descriptor)) as pieces:
        async for piece in pieces:
            kept += piece[: COMPLAINT_BYTES - len(kept)]
    return kept.decode(errors="replace").strip()
