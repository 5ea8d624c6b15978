"""Programs whose output is taken as it comes."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from parley.workspace.search.ripgrep import ERROR_BYTES, ProgramResult, run_program


def shell(
    text: str, started: list[subprocess.Popen[bytes]] | None = None
) -> Callable[[int, int], subprocess.Popen[bytes]]:
    def start(out: int, err: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["/bin/sh", "-c", text], stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        if started is not None:
            started.append(process)
        return process

    return start


async def heard(text: str, *, wanted_bytes: int = 1 << 30, timeout_seconds: float = 15) -> tuple[ProgramResult, bytes]:
    taken = bytearray()

    def take(piece: bytes) -> bool:
        taken.extend(piece)
        return len(taken) < wanted_bytes

    async def bounded() -> ProgramResult:
        async with asyncio.timeout(60):
            return await run_program(shell(text), take, timeout_seconds=timeout_seconds)

    return await bounded(), bytes(taken)


async def test_output_warning_and_exit_code_are_received() -> None:
    assert await heard("echo out; echo err >&2; exit 3") == (
        ProgramResult(code=3, error_text="err", stopped=False, timed_out=False),
        b"out\n",
    )


async def test_a_lot_of_output_is_received_to_its_end() -> None:
    told, taken = await heard("head -c 10000000 /dev/zero")

    assert (told.code, len(taken)) == (0, 10_000_000)


async def test_the_start_of_a_long_warning_is_kept() -> None:
    told, _ = await heard("head -c 3000000 /dev/zero | tr '\\0' e >&2")

    assert told.error_text == "e" * ERROR_BYTES


async def test_it_is_killed_when_no_more_is_wanted() -> None:
    told, taken = await heard("exec cat /dev/zero", wanted_bytes=100_000)

    assert told == ProgramResult(code=-9, error_text="", stopped=True, timed_out=False)
    assert len(taken) < 3_000_000


@pytest.mark.parametrize("text", ["echo begun; exec sleep 600", "echo begun; exec sleep 600 >&- 2>&-"])
async def test_it_is_killed_at_the_deadline(text: str) -> None:
    assert await heard(text, timeout_seconds=2) == (
        ProgramResult(code=-9, error_text="", stopped=False, timed_out=True),
        b"begun\n",
    )


async def test_it_is_killed_with_its_caller() -> None:
    started: list[subprocess.Popen[bytes]] = []

    start_time = asyncio.Event()

    def take(piece: bytes) -> bool:
        start_time.set()
        return True

    before = len(os.listdir("/proc/self/fd"))
    start = shell("echo begun; exec sleep 600", started)
    task = asyncio.create_task(run_program(start, take, timeout_seconds=600))
    async with asyncio.timeout(60):
        await start_time.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(os.listdir("/proc/self/fd")) == before
    assert started[0].returncode == -9


async def test_what_does_not_start_leaves_nothing_open(tmp_path: Path) -> None:
    def start(out: int, err: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([tmp_path / "nothing"], stdout=out, stderr=err)

    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        await run_program(start, lambda piece: True, timeout_seconds=5)
    assert len(os.listdir("/proc/self/fd")) == before
