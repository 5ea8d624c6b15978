"""What tokens and tenants have used, and how much of the server they may hold."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from parley.gateway.database import SessionRows, open_projections
from parley.gateway.security.quotas import Spending, TenantThreads, TokenUse, Unsent, Use
from parley.gateway.session_log.records import CreatedRecord
from parley.gateway.session_log.session_log import SessionLog
from tests.helpers.patience import PATIENCE_SECONDS


def total(usd: float) -> dict[str, Any]:
    return {"total_cost_usd": usd, "modelUsage": {}}


def usage(usd: float) -> dict[str, Any]:
    return {"total_cost_usd": usd, "model_usage": {}}


def test_what_is_used_between_results_counts_once(tmp_path: Path) -> None:
    database = open_projections(tmp_path / "db")
    log = SessionLog(tmp_path / "s.log", SessionRows(database).follow)
    log.record(CreatedRecord(tenant="", creator="token", cwd="/", options=b"[]", at=0))
    spending = Spending(database)
    log.record(spending.measure(log, total(1.0)))
    log.record(spending.measure_between(log, usage(1.5)))
    log.record(spending.measure_between(log, usage(2.0)))
    assert spending.of("token") == Use(0, 2.0)
    log.record(spending.measure(log, total(2.5)))  # it has what came between
    assert spending.of("token") == Use(0, 2.5)
    log.record(spending.measure_between(log, usage(3.0)))
    spending.forget("s")  # the engine has ended: the next one continues from its last result
    log.record(spending.measure(log, total(3.5)))
    assert spending.of("token") == Use(0, 4.0)
    log.close()
    database.close()


async def test_a_tenant_does_not_wait_for_the_work_of_another() -> None:
    threads, release = TenantThreads(), threading.Event()
    greedy = [asyncio.create_task(threads.run("greedy", release.wait)) for _ in range(50)]
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert [await threads.run("modest", lambda: "done") for _ in range(3)] == ["done"] * 3
        assert not any(task.done() for task in greedy)
        release.set()
        assert await asyncio.gather(*greedy) == [True] * 50
    threads.close()


async def test_what_is_not_read_leaves_room_when_it_is() -> None:
    use = TokenUse()
    use.most_unsent = 100_000
    slow, other = Unsent(use), Unsent(use)
    slow.set(100_000)
    assert other.is_refused(70_000)
    assert not other.is_refused(60_000)  # a little always fits
    waiting = asyncio.create_task(use.wait_room())
    await asyncio.sleep(0)
    assert not waiting.done()
    slow.set(0)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await waiting
    assert not other.is_refused(70_000)
