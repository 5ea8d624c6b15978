"""Engines in the process of the server."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from parley.gateway.engines import EngineStart, TaskEngine
from tests.helpers.gateway import user
from tests.helpers.patience import PATIENCE_SECONDS


async def test_a_long_answer_lets_others_run(tmp_path: Path) -> None:
    lines: list[bytes] = []
    start = EngineStart(
        argv=("--model", "offline", "--include-partial-messages", "--no-session-persistence"),
        cwd=str(tmp_path),
        environment={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        on_lines=lines.append,
        on_input=lambda data: None,
        on_end=lambda errors: None,
    )
    engine = TaskEngine(start)
    engine.write(user("say " + "word " * 20_000).encode())
    seen = set[int]()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not any(line.startswith(b'{"type":"result"') for line in lines[-3:]):
            seen.add(len(lines))
            await asyncio.sleep(0)
    await engine.close()

    streamed = sum(b'"stream_event"' in line for line in lines)
    assert streamed > 1000
    assert len(seen) > streamed / 200


async def test_an_engine_that_is_stopped_before_it_runs_ends(tmp_path: Path) -> None:
    lines: list[bytes] = []
    ended = asyncio.Event()
    start = EngineStart(
        argv=("--model", "offline", "--no-session-persistence"),
        cwd=str(tmp_path),
        environment={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        on_lines=lines.append,
        on_input=lambda data: None,
        on_end=lambda errors: ended.set(),
    )
    engine = TaskEngine(start)
    engine.write(user("say No.").encode())
    engine.stop()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await ended.wait()
    assert not any(b"No." in line for line in lines)
