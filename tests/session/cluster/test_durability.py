"""Whether a cluster starts with settings that could lose what was acknowledged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.cluster.base import ClusterError
from parley.cluster.nats import DurabilityOptions, NatsAddress, NatsClusterOptions, check_durability, open_nats
from tests.helpers.nats import nats_server
from tests.helpers.ports import free_port


def make_config(**changes: Any) -> dict[str, Any]:
    return {"name": "parley_log", "storage": "file", "num_replicas": 1, **changes}


async def test_three_replicas_keep_what_was_acknowledged() -> None:
    assert await check_durability(make_config(num_replicas=3), DurabilityOptions()) is None


async def test_an_operator_may_state_that_every_message_is_synced() -> None:
    assert await check_durability(make_config(), DurabilityOptions(states_sync_always=True)) is None


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (make_config(), "has 1 replica instead of 3, and it is not known whether"),
        (make_config(num_replicas=2), "has 2 replicas instead of 3"),
        (make_config(storage="memory", num_replicas=3), "is kept in memory instead of files"),
        (make_config(persist_mode="async", num_replicas=3), "has persist_mode async"),
    ],
)
async def test_other_settings_may_lose_messages(config: dict[str, Any], reason: str) -> None:
    assert reason in str(await check_durability(config, DurabilityOptions()))


async def test_the_monitoring_port_says_whether_every_message_is_synced(tmp_path: Path) -> None:
    with nats_server(tmp_path / "a") as lazy, nats_server(tmp_path / "b", sync_always=True) as eager:
        address = NatsAddress(url=lazy.url)
        with pytest.raises(ClusterError, match=r"could be lost: .* not known .* give --accept-loss"):
            await open_nats(address, NatsClusterOptions())
        with pytest.raises(ClusterError, match=rf"NATS at {lazy.monitor} does not have `sync_interval: always`, and"):
            await open_nats(address, NatsClusterOptions(durability=DurabilityOptions(monitors=[lazy.monitor])))
        stated = DurabilityOptions(monitors=[lazy.monitor], states_sync_always=True)
        with pytest.raises(ClusterError, match=r"`--sync-always` was given, but"):
            await open_nats(address, NatsClusterOptions(durability=stated))
        accepted = DurabilityOptions(monitors=[lazy.monitor], accept_loss=True)
        await (await open_nats(address, NatsClusterOptions(durability=accepted))).close()

        checked = DurabilityOptions(monitors=[eager.monitor])
        await (await open_nats(NatsAddress(url=eager.url), NatsClusterOptions(durability=checked))).close()


async def test_a_monitoring_port_must_answer() -> None:
    with pytest.raises(ClusterError, match="does not answer"):
        await check_durability(make_config(), DurabilityOptions(monitors=[f"http://127.0.0.1:{free_port()}"]))


async def test_a_monitoring_port_has_a_web_address() -> None:
    with pytest.raises(ClusterError, match="begins with http"):
        await check_durability(make_config(), DurabilityOptions(monitors=["file:///etc/passwd"]))


async def test_a_database_that_does_not_sync_is_refused(single_nats: str, postgres_address: str) -> None:
    options = NatsClusterOptions(prefix="unsynced", log_address=postgres_address)
    with pytest.raises(ClusterError, match=r"could be lost: PostgreSQL at 127\.0\.0\.1:\d+ has fsync=off"):
        await open_nats(NatsAddress(url=single_nats), options)


async def test_a_database_that_is_not_there_is_named_without_its_password(single_nats: str) -> None:
    options = NatsClusterOptions(log_address=f"postgres://user:secret@127.0.0.1:{free_port()}/x", prefix="no_database")
    with pytest.raises(ClusterError, match=r"^PostgreSQL at 127\.0\.0\.1:\d+ failed: ") as caught:
        await open_nats(NatsAddress(url=single_nats), options)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("prefix", ["", "a.b", "a b", "*"])
async def test_the_name_of_a_cluster_must_be_one_word(single_nats: str, prefix: str) -> None:
    with pytest.raises(ClusterError, match="the name of a cluster"):
        await open_nats(NatsAddress(url=single_nats), NatsClusterOptions(prefix=prefix))
