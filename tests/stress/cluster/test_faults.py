"""Short forms of the programs that kill, freeze and cut off parts of a cluster."""

from __future__ import annotations

from pathlib import Path

from tests.stress.cluster import checker, host_freezes, host_kills, nats_kills, rolling_upgrade
from tests.stress.cluster.faults import short_plan, start_and_run


async def test_sessions_survive_kills_of_their_hosts(tmp_path: Path) -> None:
    report = await start_and_run(tmp_path, "kills", host_kills.kill_hosts, short_plan(count=2))

    assert report.problems == []


async def test_late_writes_of_frozen_hosts_are_refused(tmp_path: Path) -> None:
    report = await start_and_run(tmp_path, "freezes", host_freezes.freeze_host, short_plan())

    assert report.problems == []


async def test_sessions_survive_kills_of_nats_servers(tmp_path: Path) -> None:
    report = await start_and_run(tmp_path, "NATS", nats_kills.kill_server, short_plan(nats_servers=3, lease_seconds=5))

    assert report.problems == []


async def test_a_random_history_with_faults_has_no_contradiction(tmp_path: Path) -> None:
    report = await checker.start_and_check(tmp_path, checker.short_plan())

    assert report.problems == []


async def test_no_prompt_fails_while_hosts_are_upgraded(tmp_path: Path) -> None:
    report = await rolling_upgrade.run(tmp_path, rolling_upgrade.short_plan())

    assert report.problems == []
