"""Runs steps one after the other. A started step finishes even if its caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class SerialQueue:
    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._steps: set[asyncio.Task[None]] = set()

    async def run(self, step: Coroutine[Any, Any, None]) -> None:
        async def in_turn() -> None:
            async with self._lock:
                await step

        task = asyncio.get_running_loop().create_task(in_turn())
        self._steps.add(task)
        task.add_done_callback(self._steps.discard)
        await asyncio.shield(task)
