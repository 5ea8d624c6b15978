"""Two hosts in one process: a session runs on one and continues on the other."""

from __future__ import annotations

from pathlib import Path

from parley.cluster.base import Cluster, LogKey
from tests.helpers.hosts import RunningHost, find_host, started, stored_lines
from tests.helpers.local_cluster import open_local

TTL_SECONDS = 2.0


async def said(cluster: Cluster, key: LogKey) -> list[str]:
    """The types of the messages that a session's log has."""
    types = [line["type"] for line in await stored_lines(cluster, key)]
    return [kind for kind in types if kind in ("user", "assistant", "result", "control_request")]


async def test_a_session_runs_and_everything_it_says_is_in_its_log(tmp_path: Path) -> None:
    cluster = open_local(tmp_path / "cluster.db", shards=4, ttl_seconds=TTL_SECONDS)
    one = RunningHost(cluster, tmp_path, "one")
    async with started(one):
        await one.wait_shards(4)
        key = await one.create()
        uuid = await one.prompt(key, "say hello")
        result = await one.wait_result(key, uuid)

        assert result["result"] == "hello"
        assert await said(cluster, key) == ["user", "assistant", "result"]


async def test_a_turn_that_was_in_the_model_continues_on_another_host(tmp_path: Path) -> None:
    cluster = open_local(tmp_path / "cluster.db", shards=4, ttl_seconds=TTL_SECONDS)
    one = RunningHost(cluster, tmp_path, "one")
    async with started(one):
        await one.wait_shards(4)
        key = await one.create()
        first = await one.prompt(key, "say one")
        await one.wait_result(key, first)
        uuid = await one.prompt(key, "wait 1\nsay two")
        await one.wait_for(key, lambda line: line.get("subtype") == "init", after=4)
        await one.crash()
        two = RunningHost(cluster, tmp_path, "two")
        async with started(two):
            assert await find_host([two], key) is two
            result = await two.wait_result(key, uuid)
            assert result["result"] == "two"
            lines = await stored_lines(cluster, key)
            assert [line["result"] for line in lines if line["type"] == "result"] == ["one", "two"]
