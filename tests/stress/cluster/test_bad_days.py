"""Days on which NATS is slow, has lost data, or cannot be reached by one host: the turn ends or waits, and says why.

See also: `tests/process/cluster/test_bad_days.py` for NATS servers that are away, restarted and full,
`test_gateways.py` for a gateway without NATS, and `tests/session/cluster/test_host_life.py` for newer hosts.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

from parley.cluster.nats.connection import NatsAddress, NatsConnection
from parley.cluster.nats.jetstream import EXPECTED, JetStream
from parley.cluster.nats.log import PREVIOUS
from parley.cluster.subjects import session_tokens
from tests.helpers.cluster_processes import SHARDS, RunningCluster
from tests.helpers.gateway import following
from tests.helpers.patience import PATIENCE_SECONDS


async def test_a_slow_nats_makes_turns_slow_and_nothing_else(tmp_path: Path) -> None:
    async with RunningCluster(tmp_path, hosts=1, lease_seconds=5, has_links=True) as cluster:
        gateway, session = cluster.gateways[0], await cluster.gateways[0].create()
        for link in cluster.links.values():
            link.delay_seconds = 0.1

        assert (await gateway.ask(session, "say slowly"))["result"] == "slowly"
        assert len(await cluster.leases()) == SHARDS


async def test_a_host_that_is_cut_off_stops_before_another_one_begins(tmp_path: Path) -> None:
    async with RunningCluster(tmp_path, hosts=2, lease_seconds=2, has_links=True) as cluster:
        await cluster.wait_until_balanced()
        gateway, session = cluster.gateways[0], await cluster.gateways[0].create()
        owner = await cluster.owner_of(session)
        async with following(gateway, session) as viewer:
            status, sent = await gateway.request(
                "POST", f"/sessions/{session}/prompts", {"content": "say one\ncall Read {}\nwait 1\nsay two"}
            )
            assert status == 202
            cluster.links[owner.base_name].cut()
            await viewer.wait_for(viewer.results)
        cluster.links[owner.base_name].heal()

        assert [result["result"] for result in viewer.results()] == ["two"]
        assert cluster.shard(session) not in await cluster.shards_of(owner.name)
        assert sent["uuid"] in viewer.results()[0]["user_message_uuids"]


async def refused(cluster: RunningCluster, session: str) -> dict[str, Any]:
    """The error of a prompt that the session cannot take."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            status, answer = await cluster.gateways[0].request(
                "POST", f"/sessions/{session}/prompts", {"content": "say more"}
            )
            if status >= 500 and "lost messages" in str(answer):
                return dict(answer)
            assert status >= 500, (status, answer)


async def test_a_session_with_a_hole_in_its_log_is_refused_and_others_are_not(tmp_path: Path) -> None:
    async with RunningCluster(tmp_path, hosts=1, lease_seconds=2) as cluster:
        gateway = cluster.gateways[0]
        damaged, whole = await gateway.create(), await gateway.create()
        for session in (damaged, whole):
            await gateway.ask(session, "say hello")
        await cluster.hosts[0].kill()
        connection = NatsConnection(NatsAddress(url=cluster.url), 5)
        await connection.open()
        head = await cluster.head(damaged)
        subject = f"parley.log.{session_tokens(cluster.key(damaged), SHARDS)}"
        # It follows a message that is not there.
        await JetStream(connection).store(subject, b"", {EXPECTED: str(head), PREVIOUS: str(head + 1)})
        await connection.close()
        await cluster.hosts[0].start()
        await cluster.wait_until_owned()

        error = await refused(cluster, damaged)
        assert "NATS" in str(error)
        assert (await gateway.ask(whole, "say still here"))["result"] == "still here"


async def test_a_nats_server_with_an_older_copy_of_its_data_is_not_written_to(tmp_path: Path) -> None:
    async with RunningCluster(tmp_path, hosts=1, lease_seconds=2) as cluster:
        gateway, (server,) = cluster.gateways[0], cluster.nats
        session = await gateway.create()
        await gateway.ask(session, "say one")
        await asyncio.to_thread(server.stop)
        shutil.copytree(server.data, tmp_path / "copy")
        await asyncio.to_thread(server.restart)
        assert (await gateway.ask(session, "say two"))["result"] == "two"
        await asyncio.to_thread(server.stop)
        shutil.rmtree(server.data)
        (tmp_path / "copy").rename(server.data)
        await asyncio.to_thread(server.restart)

        assert "NATS" in str(await refused(cluster, session))
