"""Run a search program and process its output while it arrives.

    ended = await run_program(lambda out, err: subprocess.Popen(argv, stdout=out, stderr=err), take, timeout_seconds=20)

`take` receives the output in pieces and returns whether it wants more. If not, at the timeout, or if the caller is
cancelled, the program is killed.

See also: `process/processes.py` for the model's commands, which may leave child processes.
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
PAUSE_SECONDS = 0.005
ERROR_BYTES = 1 << 14


class ProgramResult(Struct, frozen=True, kw_only=True):
    code: int
    """Negative for a signal."""
    error_text: str
    """The start of its stderr."""
    stopped: bool
    """`take` wanted no more output."""
    timed_out: bool


async def run_program(
    start: Callable[[int, int], subprocess.Popen[bytes]], take: Callable[[bytes], bool], *, timeout_seconds: float
) -> ProgramResult:
    """Run a program to its end. `start` gets the descriptors for stdout and stderr. Raises what `start` raises."""
    with ExitStack() as open_ends:
        output, output_writer = wide_pipe(open_ends)
        errors, errors_writer = wide_pipe(open_ends)
        with closing(output_writer), closing(errors_writer):
            process = start(output_writer, errors_writer)
        stderr = asyncio.create_task(read_start(errors))
        stopped = timed_out = False
        try:
            async with asyncio.timeout(timeout_seconds):
                async with aclosing(chunks(output)) as pieces:
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
            error_text = await stderr
    return ProgramResult(code=code, error_text=error_text, stopped=stopped, timed_out=timed_out)


def wide_pipe(open_ends: ExitStack) -> tuple[int, int]:
    """Create a pipe with a large buffer, where supported. Its reading end is closed with `open_ends`."""
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
    """Yield the data of a pipe, to its end.

    A search program writes once per file. Waking up for each write would cost more than the search, so after a small
    piece this waits a moment.
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
            await asyncio.sleep(PAUSE_SECONDS)


async def read_start(descriptor: int) -> str:
    """Read a pipe to its end and return the first part."""
    kept = bytearray()
    async with aclosing(chunks(descriptor)) as pieces:
        async for piece in pieces:
            kept += piece[: ERROR_BYTES - len(kept)]
    return kept.decode(errors="replace").strip()
