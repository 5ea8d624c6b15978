"""Run a program for the terminal itself, with a deadline, and read what it prints."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Mapping, Sequence
from contextlib import suppress

MAX_OUTPUT_BYTES = 64_000_000


async def run_program(
    argv: Sequence[str],
    environment: Mapping[str, str],
    timeout_seconds: float,
    *,
    cwd: str | None = None,
    data: bytes = b"",
    with_errors: bool = False,
    max_bytes: int = MAX_OUTPUT_BYTES,
) -> tuple[int, bytes]:
    """Run a program with this input; returns its exit code and output. One that prints too much is stopped, with 0.

    It is a process group of its own, of which nothing is left when this returns. Raises OSError, TimeoutError.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=cwd,
        env=environment,
        stdin=PIPE,
        stdout=PIPE,
        stderr=STDOUT if with_errors else DEVNULL,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(timeout_seconds):
            with suppress(BrokenPipeError, ConnectionResetError):  # it need not read its input
                process.stdin.write(data)
                await process.stdin.drain()
            process.stdin.close()
            output = bytearray()
            while chunk := await process.stdout.read(1 << 16):
                output += chunk
                if len(output) >= max_bytes:
                    return 0, bytes(output[:max_bytes])
            return await process.wait(), bytes(output)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
